#include "firn/data/loader.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/batch_maker.h"
#include "data/prefetcher.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/warning.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Loader";
using Clock = std::chrono::steady_clock;
// One more than any that can be reached, and an end of counting.
constexpr std::int64_t kLastEpoch = std::numeric_limits<std::int64_t>::max() / 2;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Loader::State {
  explicit State(std::shared_ptr<const BatchMaker> m) : maker(std::move(m)) {}
  ~State() { close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<const BatchMaker> maker;
  LoaderPosition position;
  LoaderStats stats;
  std::uint64_t loops = 0;  ///< loops and seeks so far: only the latest loop goes on
  bool closed = false;

  void move_to(LoaderPosition p) noexcept {
    position = p;
    ++loops;
  }
  /// Makes `batch` the next one of the epoch and moves behind it; false at the epoch's end.
  bool next(LoaderBatch& batch);
  void begin_loop() noexcept;
  /// Of an epoch in which no batch came: a loop until enough steps were done would never end.
  void warn_if_empty();
  void close() noexcept {
    closed = true;
    forget_parent();
    threads.reset();
  }

 private:
  MadeBatch make(std::int64_t count);
  /// In a child of fork() the threads and what they had locked are the parent's.
  void forget_parent() noexcept {
    if (threads && process != getpid()) static_cast<void>(threads.release());
  }

  bool whole_epoch_ = false, warned_ = false;
  std::int64_t batches_before_ = 0;  ///< stats.batches when the loop began
  std::unique_ptr<Prefetcher> threads;
  pid_t process = 0;  ///< that started them
  Clock::time_point first_asked;
};

MadeBatch Loader::State::make(std::int64_t count) {
  const LoaderOptions& options = maker->options();
  if (options.workers > 0) {
    forget_parent();
    if (!threads) {
      process = getpid();
      const int depth = options.prefetch > 0 ? options.prefetch : 2 * options.workers;
      threads = std::make_unique<Prefetcher>(maker, options.workers, depth);
    }
    if (threads->has_threads()) return threads->take(position);
  }
  return maker->make(position, count);
}

bool Loader::State::next(LoaderBatch& batch) {
  const Clock::time_point asked = Clock::now();
  if (stats.batches == 0 && stats.waited == 0) first_asked = asked;
  for (;;) {
    const std::int64_t count = maker->count_at(position);
    if (count == 0) return false;
    MadeBatch made = make(count);
    if (made.failure) made.failure->raise(position);
    const LoaderPosition after{position.epoch, position.sample + count};
    if (made.skipped > 0 && stats.skipped == 0)
      warn(kOp, made.why_skipped + "; this one and others like it are left out",
           "stats().skipped counts them");
    stats.skipped += made.skipped;
    if (!made.ids.defined()) {
      position = after;
      continue;
    }
    std::int64_t bytes = 0;
    const OwnerScope owner(Owner::data);
    for (Tensor& field : made.fields) {
      field = field.to(maker->options().device);
      bytes += static_cast<std::int64_t>(field.bytes());
    }
    batch.fields = std::move(made.fields);
    batch.ids = std::move(made.ids);
    batch.position = position = after;
    stats.samples += batch.size();
    stats.batches += 1;
    stats.bytes += bytes;
    const Clock::time_point now = Clock::now();
    stats.waited += seconds_between(asked, now);
    stats.seconds = seconds_between(first_asked, now);
    return true;
  }
}

void Loader::State::begin_loop() noexcept {
  ++loops;
  whole_epoch_ = position.sample == 0;
  batches_before_ = stats.batches;
}

void Loader::State::warn_if_empty() {
  if (!whole_epoch_ || stats.batches != batches_before_ || warned_) return;
  warned_ = true;
  const std::int64_t n = maker->set().size();
  std::string what = fmt::format("epoch {} had no batch: {} samples in batches of {}",
                                 position.epoch, n, maker->options().batch);
  if (stats.skipped > 0) what += fmt::format(", of which {} were left out so far", stats.skipped);
  warn(
      kOp, what,
      maker->options().drop_last && n > 0 ? "drop_last leaves out what does not fill a batch" : "");
}

const Tensor& LoaderBatch::operator[](std::size_t i) const {
  FIRN_CHECK(i < fields.size(), "LoaderBatch", "", "field {} of a batch with {}", i, fields.size());
  return fields[i];
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

const LoaderOptions& Loader::options() const { return state().maker->options(); }
std::string Loader::order_description() const { return state().maker->order().description(); }
const Dataset& Loader::dataset() const { return state().maker->set(); }

std::int64_t Loader::batches() const {
  const std::int64_t n = samples(), b = options().batch;
  return n / b + (n % b != 0 ? 1 : 0);
}

std::int64_t Loader::samples() const {
  const std::int64_t n = dataset().size();
  return options().drop_last ? n - n % options().batch : n;
}

LoaderPosition Loader::position() const { return state().position; }

void Loader::seek(LoaderPosition position) {
  State& s = state();
  FIRN_CHECK(position.epoch >= 0 && position.epoch < kLastEpoch && position.sample >= 0 &&
                 position.sample <= dataset().size(),
             kOp, "was it saved for another set?", "no position {} of epoch {} in a set of {}",
             position.sample, position.epoch, dataset().size());
  s.move_to(position);
}

LoaderStats Loader::stats() const { return state().stats; }

Loader::Epoch Loader::epoch(std::int64_t number) {
  state();
  FIRN_CHECK(number >= 0 && number < kLastEpoch, kOp, "epochs count from 0", "epoch {}", number);
  return Epoch(state_, number);
}

Loader::Iterator Loader::begin() {
  state();
  return Iterator(state_);
}

Loader::Epoch::Epoch(std::shared_ptr<State> state, std::int64_t number)
    : state_(std::move(state)), number_(number) {}

Loader::Iterator Loader::Epoch::begin() const {
  if (state_->position.epoch != number_) state_->move_to({number_, 0});
  return Iterator(state_);
}

Loader::Iterator::Iterator(std::shared_ptr<State> state) : state_(std::move(state)) {
  state_->begin_loop();
  loop_ = state_->loops;
  advance();
}

void Loader::Iterator::advance() try {
  State& s = *state_;
  FIRN_CHECK(!s.closed, kOp, "keep the loader as long as the loop",
             "the loader of this loop is gone");
  FIRN_CHECK(loop_ == s.loops, kOp, "begin a loop anew after seek(), and run one at a time",
             "seek() or another loop has moved the loader of this loop");
  batch_ = {};  // the next batch reuses the memory, unless the user kept a handle
  if (s.next(batch_)) return;
  done_ = true;
  s.warn_if_empty();
  s.move_to({s.position.epoch + 1, 0});
}
FIRN_OUT_OF_MEMORY("Loader")

Loader::Iterator& Loader::Iterator::operator++() {
  advance();
  return *this;
}

}  // namespace firn::data
