#include "dist/step/gathered.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "dist/step/shards.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

/// Returns this rank's shard in a bucket's buffer.
Tensor own_part(const Bucket& b, const Tensor& memory, int rank) {
  const std::int64_t first = b.bounds[static_cast<std::size_t>(rank)];
  return part_of(memory, {first, first + b.kept.size()});
}

}  // namespace

WeightGatherer::WeightGatherer(const BucketLayout& layout,
                               std::shared_ptr<const autograd::Peers> peers, Agree agree, Fail fail)
    : layout_(layout),
      store_(layout.store()),
      peers_(std::move(peers)),
      agree_(std::move(agree)),
      fail_(std::move(fail)) {
  const auto& buckets = layout_.buckets();
  states_.resize(buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    states_[b].versions.resize(buckets[b].parameters.size());
    for (const std::size_t i : buckets[b].parameters)
      if (store_.weight(i).bytes() > 0) bucket_of_.emplace(&store_.weight(i), b);
  }
  autograd::add_scope_listener(self_);
}

void WeightGatherer::provide() noexcept {
  for (std::size_t i = 0; i < store_.ledger().size(); ++i)
    if (store_.weight(i).bytes() > 0) store_.weight(i).set_provider(this);
}

WeightGatherer::~WeightGatherer() {
  drop();
  for (std::size_t i = 0; i < store_.ledger().size(); ++i)
    if (store_.weight(i).is_provided()) store_.weight(i).set_provider(nullptr);
}

void WeightGatherer::fetch(Storage& storage) {
  keep_if_planned();
  const std::size_t b = bucket_of_.at(&storage);
  if (!states_[b].memory.defined()) bring(b);
  give(b);
}

void WeightGatherer::bring(std::size_t b) {
  const runtime::DoNotSkip really;
  if (holds_ == 0)
    for (GatherState& other : states_)
      if (!other.here) other.memory = Tensor();
  Tensor memory = take_ahead(b);
  if (!memory.defined()) {
    const Prepared prepared = prepare(b, false);
    memory = prepared.memory;
    prepared.gathering.run(*peers_);
  }
  states_[b].memory = memory;
  if (peers_->overlaps()) look_ahead(b);
}

WeightGatherer::Prepared WeightGatherer::prepare(std::size_t b, bool ahead) {
  const Bucket& bucket = layout_.buckets()[b];
  std::optional<Prepared> out;
  try {
    const Tensor memory = layout_.weight_memory(bucket);
    if (bucket.kept.size() > 0)
      kernels::copy(layout_.kept_weight(bucket).view(),
                    own_part(bucket, memory, peers_->rank()).mutable_view(), store_.stream());
    out.emplace(Prepared{memory, Gathering(memory, bucket.bounds, peers_->rank())});
  } catch (...) {  // the others learn of it at their next exchange
    fail_(std::current_exception());
    throw;
  }
  if (!runtime::dry_run()) agree_(b, ahead);
  return *std::move(out);
}

Tensor WeightGatherer::take_ahead(std::size_t b) {
  if (!foresight_.ahead) return {};
  const bool is_it = *foresight_.ahead == b;
  foresight_.ahead.reset();
  const Tensor memory = std::exchange(foresight_.memory, Tensor());
  peers_->end();
  foresight_.gathering.reset();
  return is_it ? memory : Tensor();
}

void WeightGatherer::look_ahead(std::size_t b) {
  Foresight& f = foresight_;
  constexpr std::size_t kMost = std::size_t{1} << 16;  // a program may never end a step
  if (f.now.size() < kMost) f.now.push_back(b);
  const auto begin = f.before.begin() + static_cast<std::ptrdiff_t>(f.place);
  const auto found = std::find(begin, f.before.end(), b);
  if (found == f.before.end()) return;
  f.place = static_cast<std::size_t>(found - f.before.begin()) + 1;
  if (f.place == f.before.size()) return;
  const std::size_t next = f.before[f.place];
  if (states_[next].memory.defined()) return;
  Prepared prepared = prepare(next, true);
  f.memory = std::move(prepared.memory);
  f.gathering = std::move(prepared.gathering);
  f.ahead = next;
  // The function has one pointer, so that it fits into std::function without an allocation.
  peers_->begin([&f](const autograd::Peers& peers) { f.gathering->run(peers); });
}

void WeightGatherer::end_step() noexcept {
  foresight_.before.swap(foresight_.now);
  foresight_.now.clear();
  foresight_.place = 0;
}

void WeightGatherer::forget_order() noexcept {
  foresight_.before.clear();
  foresight_.now.clear();
  foresight_.place = 0;
}

void WeightGatherer::give(std::size_t b) noexcept {
  GatherState& state = states_[b];
  const Bucket& bucket = layout_.buckets()[b];
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j) {
    const std::size_t i = bucket.parameters[j];
    Storage& weight = store_.weight(i);
    if (weight.bytes() == 0) continue;
    weight.come(state.memory.storage(), layout_.weight_offset(bucket, i));
    state.versions[j] = weight.version();
  }
  state.here = true;
  state.depth = thread_context.reading ? thread_context.reading->depth : 0;
}

void WeightGatherer::keep_writes(std::size_t b) {
  GatherState& state = states_[b];
  const Bucket& bucket = layout_.buckets()[b];
  const auto version = [&](std::size_t j) { return store_.weight(bucket.parameters[j]).version(); };
  bool written = false;
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j)
    written = written || state.versions[j] != version(j);
  if (!written) return;
  if (bucket.kept.size() > 0)
    kernels::copy(own_part(bucket, state.memory, peers_->rank()).view(),
                  layout_.kept_weight(bucket).mutable_view(), store_.stream());
  for (std::size_t j = 0; j < bucket.parameters.size(); ++j) state.versions[j] = version(j);
}

void WeightGatherer::keep_writes() {
  keep_if_planned();
  for (std::size_t b = 0; b < states_.size(); ++b)
    if (states_[b].here) keep_writes(b);
}

void WeightGatherer::take_back(std::size_t b) noexcept {
  for (const std::size_t i : layout_.buckets()[b].parameters)
    if (store_.weight(i).bytes() > 0) store_.weight(i).go();
  states_[b].here = false;
}

void WeightGatherer::end_of_scope(int depth) noexcept {
  if (holds_ > 0) return;
  try {
    keep_if_planned();
    for (std::size_t b = 0; b < states_.size(); ++b) {
      if (!states_[b].here || states_[b].depth < depth) continue;
      keep_writes(b);
      take_back(b);
    }
  } catch (const std::exception&) {  // NOLINT: weights stay here until the next scope ends
  }
}

void WeightGatherer::drop() noexcept {
  for (std::size_t b = 0; b < states_.size(); ++b) {
    if (states_[b].here) take_back(b);
    states_[b].memory = Tensor();
  }
  try {
    take_ahead(states_.size());
  } catch (const std::exception&) {  // NOLINT: the next exchange throws it again
  }
}

void WeightGatherer::release() {
  if (holds_ > 0) return;
  keep_if_planned();
  keep_writes();
  drop();
}

std::shared_ptr<void> WeightGatherer::hold() {
  ++holds_;
  std::shared_ptr<void> out(this, [self = std::weak_ptr(self_)](void*) {
    const auto alive = self.lock();
    if (!alive) return;
    auto& gatherer = static_cast<WeightGatherer&>(**alive);
    if (--gatherer.holds_ > 0) return;
    gatherer.end_of_scope(0);
    for (GatherState& state : gatherer.states_) state.memory = Tensor();
  });
  for (std::size_t b = 0; b < states_.size(); ++b) {
    if (!states_[b].memory.defined()) bring(b);
    if (!states_[b].here) give(b);
  }
  return out;
}

void WeightGatherer::keep_if_planned() {
  if (!runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(
      this, [self = std::weak_ptr(self_), states = states_, foresight = foresight_] {
        const auto alive = self.lock();
        if (!alive) return;
        auto& gatherer = static_cast<WeightGatherer&>(**alive);
        gatherer.foresight_.ahead.reset();  // it belongs to the plan, which has begun no exchange
        gatherer.drop();
        gatherer.foresight_ = foresight;
        gatherer.states_ = states;
        for (std::size_t b = 0; b < states.size(); ++b) {
          if (!states[b].here) continue;
          gatherer.give(b);
          gatherer.states_[b].depth = states[b].depth;
          gatherer.states_[b].versions =
              states[b].versions;  // so writes from before the plan are still copied
        }
      });
}

}  // namespace firn::optim
