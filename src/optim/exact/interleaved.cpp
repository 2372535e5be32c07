#include "optim/exact/interleaved.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"

namespace firn::optim {
namespace {

constexpr const char* kSameLayers =
    "call the same layers in the same order for each chunk, or choose another BatchNormMode";

enum State : std::int64_t { done, waiting, failed };

std::string in_words(const autograd::BatchParts::Place& place) {
  return fmt::format("the {} pass of {}", place.backward ? "backward" : "forward", *place.layer);
}

}  // namespace

InterleavedChunks::InterleavedChunks(OptimizerImpl& impl, bool& in_chunk, std::int64_t chunks,
                                     const char* why_alone)
    : impl_(impl),
      in_chunk_(in_chunk),
      why_alone_(why_alone),
      chunks_(static_cast<std::size_t>(chunks)) {}

const std::string& InterleavedChunks::op() const noexcept { return impl_.store.op(); }
const autograd::Peers* InterleavedChunks::peers() const noexcept {
  return runtime::dry_run() ? nullptr : impl_.extension->copies();
}
double InterleavedChunks::unit() const noexcept {
  return runtime::dry_run() ? 1 : impl_.loss_sums().unit;
}

// ---- Scheduling ----

void InterleavedChunks::collect_into(std::int64_t i, std::vector<Tensor> place) {
  if (place.empty())
    impl_.store.collect_here();
  else
    impl_.store.collect_into(place);
  chunks_[static_cast<std::size_t>(i)].place = std::move(place);
}

void InterleavedChunks::resume_chunk(Chunk& chunk) {
  if (!exchanged_) return;
  impl_.store.ledger().exchange(chunk.ledger);
  impl_.now.phase = chunk.phase;
  in_chunk_ = chunk.in_chunk;
  if (!chunk.place.empty()) impl_.store.collect_into(chunk.place);
  if (chunk.waits && !runtime::dry_run()) impl_.set_loss_sums(chunk.sums);
}

void InterleavedChunks::suspend_chunk(Chunk& chunk) {
  chunk.ledger = impl_.store.ledger().exchange({});
  chunk.sums = impl_.loss_sums();
  chunk.phase = std::exchange(impl_.now.phase, Phase::collecting);
  chunk.in_chunk = std::exchange(in_chunk_, false);
  if (!chunk.place.empty()) impl_.store.collect_here();
}

std::shared_ptr<const InterleavedChunks::Numbers> InterleavedChunks::exchange(
    const Place& place, Numbers numbers, const Combine& combine) {
  FIRN_CHECK(!why_alone_, op(), "choose another BatchNormMode",
             "{} needs all chunks of the batch at a time, and {}", *place.layer, why_alone_);
  Chunk& chunk = chunks_[static_cast<std::size_t>(current_)];
  chunk.waits = true;
  chunk.at = place;
  chunk.numbers = std::move(numbers);
  chunk.combine = &combine;
  {
    const autograd::BatchPartScope::Away away(op().c_str());
    Coroutine::stop();
  }
  return result_;
}

bool InterleavedChunks::go_on(const std::function<void(std::int64_t)>& compute,
                              const std::function<void(std::int64_t)>& ended) {
  const auto n = static_cast<std::int64_t>(chunks_.size());
  bool wait = false;
  for (std::int64_t i = 0; i < n; ++i) {
    Chunk& chunk = chunks_[static_cast<std::size_t>(i)];
    if (!chunk.coroutine)
      chunk.coroutine = std::make_unique<Coroutine>([this, &compute, i] {
        const autograd::BatchPartScope part(*this);
        compute(i);
      });
    current_ = i;
    resume_chunk(chunk);
    const bool waits = chunk.coroutine->resume(op().c_str());
    if (waits) {
      exchanged_ = true;
      suspend_chunk(chunk);
    } else {
      chunk.coroutine.reset();
      if (!exchanged_) ended(i);
    }
    FIRN_CHECK(i == 0 || waits == wait, op(), kSameLayers,
               "chunk {} of this rank has ended, or has no gradient for what is left, and chunk "
               "{} is at {}",
               waits ? 0 : i, waits ? i : 0,
               in_words(chunks_[static_cast<std::size_t>(waits ? i : 0)].at));
    wait = waits;
  }
  return wait;
}

void InterleavedChunks::require_same_place() const {
  const Chunk& first = chunks_.front();
  for (std::size_t i = 1; i < chunks_.size(); ++i) {
    const Chunk& q = chunks_[i];
    const bool same = q.at.layer == first.at.layer && q.at.backward == first.at.backward &&
                      q.at.first == first.at.first;
    FIRN_CHECK(same, op(), kSameLayers, "chunk {} of this rank is at {}, and chunk 0 at {}", i,
               in_words(q.at), in_words(first.at));
    FIRN_CHECK(q.numbers.size() == first.numbers.size(), op(), kSameLayers,
               "chunk {} of this rank has other channels at {} than chunk 0", i, in_words(q.at));
  }
}

// ---- Ranks ----

bool InterleavedChunks::exchange(bool waits, bool has_failed, std::vector<Numbers>& all) {
  const Chunk none;
  const Chunk& first = chunks_.empty() ? none : chunks_.front();
  all.clear();
  for (const Chunk& q : chunks_) all.push_back(q.numbers);
  if (!peers()) return waits;
  const OwnerScope owner(Owner::workspace);
  const int ranks = peers()->size();
  std::int64_t layer = -1;
  if (waits) {
    const auto known = std::find(layers_.begin(), layers_.end(), first.at.layer.get());
    layer = known - layers_.begin();
    if (known == layers_.end()) layers_.push_back(first.at.layer.get());
  }
  const Word mine{.state = has_failed ? failed
                           : waits    ? waiting
                                      : done,
                  .first = first.at.first,
                  .layer = layer,
                  .backward = first.at.backward,
                  .numbers = static_cast<std::int64_t>(first.numbers.size()),
                  .chunks = static_cast<std::int64_t>(chunks_.size())};
  const Tensor word = empty({sizeof(Word)}, DType::u8, Device::cpu());
  const Tensor words =
      empty({ranks * static_cast<std::int64_t>(sizeof(Word))}, DType::u8, Device::cpu());
  std::memcpy(word.mutable_view().data, &mine, sizeof(Word));
  peers()->all_gather(word, words);
  std::vector<Word> reported(static_cast<std::size_t>(ranks));
  std::memcpy(reported.data(), words.view().data, words.bytes());

  const auto is = [](std::int64_t state) {
    return [state](const Word& w) { return w.state == state; };
  };
  if (std::any_of(reported.begin(), reported.end(), is(failed))) {
    using autograd::Outcome;  // throws if this rank has not
    peers()->agree(op().c_str(), has_failed ? Outcome::failed : Outcome::done);
    return false;
  }
  const auto leader = std::find_if(reported.begin(), reported.end(), is(waiting));
  if (leader == reported.end()) return false;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < reported.size(); ++r) {
    const Word& w = reported[r];
    most = std::max(most, w.chunks);
    FIRN_CHECK(w.chunks == 0 ||
                   (w.state == waiting && w.first == leader->first && w.layer == leader->layer &&
                    w.backward == leader->backward && w.numbers == leader->numbers),
               op(), kSameLayers,
               "the chunks of rank {} and rank {} are at different layers that normalise the batch",
               r, leader - reported.begin());
  }

  const std::int64_t row = leader->numbers;
  const Tensor here = zeros({most * row}, DType::f64, Device::cpu());
  const Tensor there = empty({ranks * most * row}, DType::f64, Device::cpu());
  auto* const to = here.mutable_view().as<double>();
  for (std::size_t q = 0; q < all.size(); ++q)
    std::copy(all[q].begin(), all[q].end(), to + static_cast<std::int64_t>(q) * row);
  peers()->all_gather(here, there);
  all.clear();
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t q = 0; q < reported[static_cast<std::size_t>(r)].chunks; ++q) {
      const double* const from = there.view().as<double>() + (r * most + q) * row;
      all.emplace_back(from, from + row);
    }
  return true;
}

void InterleavedChunks::run(const std::function<void(std::int64_t)>& compute,
                            const std::function<void(std::int64_t)>& ended) {
  // Unwind the chunks while the objects that they refer to are alive.
  struct Unwind {
    std::vector<Chunk>& chunks;
    void operator()() const noexcept {
      for (Chunk& q : chunks) q.coroutine.reset();
    }
    ~Unwind() { (*this)(); }
  } const unwind{chunks_};
  std::vector<Numbers> all;
  for (bool waits = true; waits;) {
    std::exception_ptr failure;
    try {
      waits = go_on(compute, ended);
      if (waits) require_same_place();
    } catch (...) {
      failure = std::current_exception();
      unwind();
    }
    try {
      waits = exchange(waits, failure != nullptr, all);
    } catch (...) {  // this rank's own failure says more
      if (!failure) throw;
    }
    if (failure) std::rethrow_exception(failure);
    if (!waits) return;
    ++serial_;
    if (chunks_.empty()) continue;
    const Chunk& first = chunks_.front();
    result_ =
        std::make_shared<const Numbers>(runtime::dry_run() ? first.numbers : (*first.combine)(all));
  }
}

}  // namespace firn::optim
