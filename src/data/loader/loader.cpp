#include "firn/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/loader/feed.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/spans.h"
#include "firn/warning.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Loader";
using Clock = std::chrono::steady_clock;
// One more than any epoch that can be reached; counting stops there.
constexpr std::int64_t kLastEpoch = std::numeric_limits<std::int64_t>::max() / 2;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Loader::State {
  explicit State(std::shared_ptr<const BatchMaker> m) : feed(std::move(m)) {}
  ~State() { close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Feed feed;
  /// State that a RollbackPoint restores.
  struct Place {
    LoaderPosition position, before;  ///< `before` the current batch
    bool goes_on = true;              ///< no batch was taken since a seek: a loop begins here
    std::uint64_t loop = 0;           ///< current loop; a seek counts as a loop too
    std::uint64_t at_end = 0;         ///< the loop that has come to its end
    bool whole_epoch = false;         ///< the loop began at an epoch's start
    std::int64_t batches_before = 0;  ///< stats.batches when the loop began
    LoaderBatch batch;                ///< current batch
  } at;
  LoaderStats stats;
  bool closed = false;

  void move_to(LoaderPosition p) noexcept {
    at.position = at.before = p;
    at.goes_on = true;
    at.loop = ++loops_;
  }
  /// Takes the next batch of the current epoch and moves past it; returns false at the epoch's end.
  bool next();
  void begin_loop() noexcept;
  /// Warns if an epoch had no batch: a loop until enough steps were done would never end.
  void warn_if_empty();
  /// Saves the loader's place for RollbackPoints of this thread.
  static void about_to_move(const std::shared_ptr<State>& s) {
    runtime::before_change(Rollback::data, s.get(), [&s]() -> std::function<void()> {
      return [s, place = s->at] { s->at = place; };
    });
    if (runtime::planning()) [[unlikely]]
      runtime::at_dry_end(&s->stats, [s, stats = s->stats, warned = s->warned_] {
        s->stats = stats;
        s->warned_ = warned;
      });
  }
  void close() noexcept {
    closed = true;
    feed.close();
  }
  /// While alive, a thread moves the loader. Throws Error if another thread does, or if the data
  /// set of this loader calls it while it makes a batch.
  class Moving {
   public:
    explicit Moving(State& s) : state_(s) {
      FIRN_CHECK(!s.moving_.exchange(true), kOp,
                 "give each thread a loader of its own, and a data set none that reads it",
                 "the loader is at work: another thread or its own data set uses it meanwhile");
    }
    ~Moving() { state_.moving_ = false; }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    State& state_;
  };

 private:
  std::atomic<bool> moving_ = false;
  std::uint64_t loops_ = 0;  ///< number of loops begun so far
  bool warned_ = false;
  Clock::time_point first_asked;
};

bool Loader::State::next() {
  const runtime::Span span(runtime::SpanKind::phase, "next batch");
  const OwnerScope owner(Owner::data);
  at.batch = {};  // the next one reuses the memory, unless the user kept a handle
  const Clock::time_point asked = Clock::now();
  if (stats.batches == 0 && stats.waited == 0) first_asked = asked;
  for (;;) {
    const std::int64_t count = feed.maker().count_at(at.position);
    if (count == 0) return false;
    MadeBatch made = feed.take(at.position);
    if (made.failure) made.failure->raise(at.position, feed.maker().options().bad_sample);
    const LoaderPosition after{at.position.epoch, at.position.sample + count};
    if (made.skipped > 0 && stats.skipped == 0)
      warn(kOp, made.why_skipped + "; this one and others like it are left out",
           "stats().skipped counts them");
    stats.skipped += made.skipped;
    if (!made.ids.defined()) {
      at.position = after;
      continue;
    }
    std::int64_t bytes = 0;
    for (const Tensor& field : made.fields) bytes += static_cast<std::int64_t>(field.bytes());
    at.batch = {std::move(made.fields), std::move(made.ids), after,
                feed.maker().part_of(count).first, count};
    at.before = at.position;
    at.position = after;
    at.goes_on = false;
    stats.samples += at.batch.size();
    stats.batches += 1;
    stats.bytes += bytes;
    feed.begin(after);
    const Clock::time_point now = Clock::now();
    stats.waited += seconds_between(asked, now);
    stats.seconds = seconds_between(first_asked, now);
    return true;
  }
}

void Loader::State::begin_loop() noexcept {
  at.loop = ++loops_;
  at.whole_epoch = at.position.sample == 0;
  at.batches_before = stats.batches;
}

void Loader::State::warn_if_empty() {
  if (!at.whole_epoch || stats.batches != at.batches_before || warned_) return;
  warned_ = true;
  const std::int64_t n = feed.maker().set().size();
  std::string what = fmt::format("epoch {} had no batch: {} samples in batches of {}",
                                 at.position.epoch, n, feed.maker().options().batch);
  if (stats.skipped > 0) what += fmt::format(", of which {} were left out so far", stats.skipped);
  warn(kOp, what,
       feed.maker().options().drop_last && n > 0 ? "drop_last leaves out what does not fill a batch"
                                                 : "");
}

const Tensor& LoaderBatch::operator[](std::size_t i) const {
  FIRN_CHECK(i < fields.size(), "LoaderBatch", "fields count from 0, in the order of the samples",
             "field {} of a batch with {}", i, fields.size());
  return fields[i];
}

LoaderBatch LoaderBatch::part(std::int64_t begin, std::int64_t end) const {
  FIRN_CHECK(
      begin >= first && begin <= end && end <= first + size(), "LoaderBatch",
      size() == 0 && total > 0
          ? "with sharded weights every rank needs samples: set drop_last, or choose a batch that "
            "leaves each rank samples"
          : "give the loader the group and the chunk of the optimizer, and run_batch() "
            "`total`",
      "samples [{}, {}) of {} are asked for, and this rank has [{}, {})", begin, end, total, first,
      first + size());
  LoaderBatch out{.fields = {},
                  .ids = ids.slice(0, begin - first, end - first),
                  .position = position,
                  .first = begin,
                  .total = total};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const Tensor& field = fields[i];
    FIRN_CHECK(field.rank() > 0 && field.size(0) == size(), "LoaderBatch",
               "let collate return one row for each sample, or take the fields as they are",
               "field {} of {} samples is {}: it cannot be cut by samples", i, size(),
               describe(field));
    out.fields.push_back(field.slice(0, begin - first, end - first));
  }
  return out;
}

Loader::Loader(Dataset set, LoaderOptions options) try
    : state_(std::make_shared<State>(
          std::make_shared<const BatchMaker>(std::move(set), std::move(options)))) {}
FIRN_OUT_OF_MEMORY("Loader")

Loader::~Loader() {
  if (state_) state_->close();
}
Loader::Loader(Loader&& other) noexcept = default;
Loader& Loader::operator=(Loader&& other) noexcept {
  if (this == &other) return *this;
  if (state_) state_->close();
  state_ = std::move(other.state_);
  return *this;
}

Loader::State& Loader::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to", "this loader was moved away");
  return *state_;
}

const LoaderOptions& Loader::options() const { return state().feed.maker().options(); }
std::string Loader::order_description() const { return state().feed.maker().order().description(); }
const Dataset& Loader::dataset() const { return state().feed.maker().set(); }

std::int64_t Loader::batches() const { return state().feed.maker().order().batches(); }

std::int64_t Loader::samples() const { return state().feed.maker().order().samples(); }

LoaderPosition Loader::position() const { return state().at.position; }
LoaderPosition Loader::before_batch() const { return state().at.before; }

void Loader::seek(LoaderPosition position) try { prepare_seek(position)(); }
FIRN_OUT_OF_MEMORY(kOp)

std::function<void()> Loader::prepare_seek(LoaderPosition position) const {
  state();
  FIRN_CHECK(position.epoch >= 0 && position.epoch < kLastEpoch && position.sample >= 0 &&
                 position.sample <= dataset().size(),
             kOp, "was it saved for another set?", "no position {} of epoch {} in a set of {}",
             position.sample, position.epoch, dataset().size());
  const State::Moving moving(*state_);
  State::about_to_move(state_);
  return [s = state_, position] { s->move_to(position); };
}

LoaderStats Loader::stats() const { return state().stats; }

Loader::Epoch Loader::epoch(std::int64_t number) {
  state();
  FIRN_CHECK(number >= 0 && number < kLastEpoch, kOp, "epochs count from 0", "epoch {}", number);
  return Epoch(state_, number);
}

Loader::Iterator Loader::begin() {
  if (const State::Place& at = state().at; !at.goes_on) return epoch(at.position.epoch + 1).begin();
  return Iterator(state_);
}

Loader::Epoch::Epoch(std::shared_ptr<State> state, std::int64_t number)
    : state_(std::move(state)), number_(number) {}

Loader::Iterator Loader::Epoch::begin() const {
  {
    const State::Moving moving(*state_);
    if (const State::Place& at = state_->at; at.position.epoch != number_ || !at.goes_on) {
      State::about_to_move(state_);
      state_->move_to({number_, 0});
    }
  }
  return Iterator(state_);
}

Loader::Iterator::Iterator(std::shared_ptr<State> state) : state_(std::move(state)) {
  {
    const State::Moving moving(*state_);
    State::about_to_move(state_);
    state_->begin_loop();
    loop_ = state_->at.loop;
  }
  advance();
}

void Loader::Iterator::advance() try {
  State& s = *state_;
  FIRN_CHECK(!s.closed, kOp, "keep the loader as long as the loop",
             "the loader of this loop is gone");
  const State::Moving moving(s);
  FIRN_CHECK(loop_ != s.at.at_end, kOp, "begin() or epoch() starts the next one",
             "this loop has come to its end");
  FIRN_CHECK(loop_ == s.at.loop, kOp,
             "begin a loop anew after seek() or load_run(), and run one at a time",
             "seek(), load_run() or another loop has moved the loader of this loop, or it was "
             "rolled back");
  State::about_to_move(state_);
  if (s.next()) return;
  s.warn_if_empty();
  s.move_to({s.at.position.epoch + 1, 0});
  s.at.at_end = loop_;
}
FIRN_OUT_OF_MEMORY("Loader")

LoaderBatch& Loader::Iterator::operator*() const {
  FIRN_CHECK(loop_ == state_->at.loop, kOp, "compare with end(), and begin a loop anew",
             "this loop has ended, or was rolled back: it has no batch");
  return state_->at.batch;
}
bool Loader::Iterator::operator==(std::default_sentinel_t) const noexcept {
  return state_->at.loop != loop_;
}

Loader::Iterator& Loader::Iterator::operator++() {
  advance();
  return *this;
}

}  // namespace firn::data
