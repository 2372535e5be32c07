// Exact mode with sharded gradients. Each rank has its shard of the gradients of all ranks' chunks,
// and adds these up in the tree by itself.
#include <algorithm>
#include <utility>

#include "kernels/copy.h"
#include "optim/exact/exact_sums.h"
#include "optim/store/sharding.h"

namespace firn::optim {
namespace {

void copy_run(const Tensor& from, std::int64_t first, const Tensor& to, std::int64_t place,
              std::int64_t count, Stream stream) {
  if (count > 0)
    kernels::copy(part_of(from, {first, first + count}).view(),
                  part_of(to, {place, place + count}).mutable_view(), stream);
}

}  // namespace

void ExactSums::begin_micro_step(const ParamStore& store, std::span<const CycleSums> sums) {
  for (std::size_t r = 0; r < sources_.size(); ++r) {
    Source& s = sources_[r];
    advance(s, store.stream());
    if (s.is_done()) continue;
    s.sums = sums[r];
    s.place = std::move(free_.back());
    free_.pop_back();
  }
}

void ExactSums::take_bucket(const ParamStore& store, const ParamStore::Bucket& bucket,
                            const Tensor& memory, const autograd::Peers& peers) {
  const Stream stream = store.stream();
  const std::int64_t count = bucket.kept.size();
  if (!memory.defined()) {
    for (const Source& s : sources_)
      if (!s.place.empty() && count > 0) {
        const Tensor part = ParamStore::kept_in(bucket, s.place);
        zero_bytes(part.impl()->data(), part.device(), part.bytes());
      }
    return;
  }
  const auto ranks = static_cast<std::int64_t>(sources_.size());
  const std::int64_t part = bucket.equal_part, rest = bucket.elements() - ranks * part;
  const auto place_of = [&](std::size_t r) -> const Tensor* {
    return sources_[r].place.empty() ? nullptr : &sources_[r].place[bucket.arena];
  };
  if (part == 0) {  // whole parameters: broadcast one rank's after another
    const std::int64_t first = bucket.bounds[rank_];
    const Tensor other = empty(memory.shape(), memory.dtype(), memory.device());
    for (std::size_t r = 0; r < sources_.size(); ++r) {
      const Tensor* const place = place_of(r);
      if (!place) continue;  // no rank has one
      const Tensor& flat = r == rank_ ? memory : other;
      peers.broadcast(flat, static_cast<int>(r));
      copy_run(flat, first, *place, bucket.kept.first, count, stream);
    }
    return;
  }
  const OwnerScope owner(Owner::gradients);
  const Tensor parts = empty({ranks * part}, memory.dtype(), memory.device());
  peers.all_to_all(part_of(memory, {0, ranks * part}), parts);
  for (std::size_t r = 0; r < sources_.size(); ++r)
    if (const Tensor* const place = place_of(r))
      copy_run(parts, static_cast<std::int64_t>(r) * part, *place, bucket.kept.first, part, stream);
  if (rest == 0) return;
  const Tensor rests = empty({ranks * rest}, memory.dtype(), memory.device());
  peers.all_gather(part_of(memory, {ranks * part, bucket.elements()}), rests);
  if (rank_ + 1 != sources_.size()) return;
  for (std::size_t r = 0; r < sources_.size(); ++r)
    if (const Tensor* const place = place_of(r))
      copy_run(rests, static_cast<std::int64_t>(r) * rest, *place, bucket.kept.first + part, rest,
               stream);
}

void ExactSums::end_turn(const ParamStore& store) {
  for (Source& s : sources_) {
    if (s.place.empty()) continue;
    s.stack.push(s.work.items[s.next++].range,
                 Part{.sums = s.sums, .gradients = std::move(s.place)},
                 [&](Part& left, Part& right) { add(left, right, false, store.stream()); });
    s.place.clear();
  }
}

CycleSums ExactSums::fold_parts(const ParamStore& store) {
  const auto add_up = [&](Part& left, Part& right) { add(left, right, false, store.stream()); };
  ChunkStack<Part> tree;
  for (Source& s : sources_) {
    for (auto& entry : s.stack.entries()) tree.push(entry.range, std::move(entry.value), add_up);
    s.stack.clear();
  }
  Part& root = tree.fold(add_up);
  const std::vector<Tensor> kept = store.gradients();
  for (std::size_t a = 0; a < kept.size(); ++a)
    copy_run(root.gradients[a], 0, kept[a], 0, kept[a].numel(), store.stream());
  free_.push_back(std::move(root.gradients));
  return root.sums;
}

}  // namespace firn::optim
