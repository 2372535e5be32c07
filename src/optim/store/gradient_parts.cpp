// Sharded gradients (ZeRO stage 2): the buckets in which they are exchanged, and the norm of a
// gradient that no rank has as a whole.
#include <algorithm>
#include <utility>

#include "firn/memory/labels.h"
#include "kernels/copy.h"
#include "optim/store/bucket_size.h"
#include "optim/store/sharding.h"

namespace firn::optim {

// ---- Buckets ----

std::vector<Share> ParamStore::bucket_ranges(const Arena& a) const {
  const auto size = static_cast<std::int64_t>(size_of(a.grad.dtype()));
  std::vector<Share> out;
  std::int64_t last = a.elements;
  // Go from the back, which backward passes finish first, so that the last bucket exchanged is the
  // small one.
  for (auto i = a.parameters.rbegin(); i != a.parameters.rend(); ++i) {
    const std::int64_t begin = parameters_[*i].begin;
    if (!out.empty() && (out.back().last - begin) * size <= bucket_bytes()) {
      out.back().first = begin;
    } else {
      out.push_back({begin, last});
    }
    last = out.back().first;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<ParamStore::Bucket> ParamStore::pieces_of(const std::vector<Arena>& arenas) const {
  std::vector<Bucket> out;
  for (std::size_t a = 0; a < arenas.size(); ++a)
    for (const Share& range : bucket_ranges(arenas[a])) {
      Bucket& b = out.emplace_back();
      b.arena = a;
      b.range = range;
      for (const std::size_t i : arenas[a].parameters)
        if (parameters_[i].begin >= range.first && parameters_[i].begin < range.last)
          b.parameters.push_back(i);
    }
  // A bucket is complete when its first parameter in the order of use has its gradient.
  std::stable_sort(out.begin(), out.end(), [](const Bucket& x, const Bucket& y) {
    return x.parameters.front() > y.parameters.front();
  });
  return out;
}

std::vector<ParamStore::Bucket> ParamStore::buckets_of(const std::vector<Arena>& arenas,
                                                       int rank) const {
  std::vector<Bucket> out = pieces_of(arenas);
  const auto r = static_cast<std::size_t>(rank);
  for (Bucket& b : out) {
    const Arena& a = arenas[b.arena];
    const ArenaRun& run = run_of(a, parameters_[b.parameters.front()]);
    b.bounds = from_begin(run.bounds, b.range);
    const std::int64_t at = run.place_of(b.range.first + b.bounds[r]);
    b.kept = {at, at + b.bounds[r + 1] - b.bounds[r]};
    b.equal_part = is_elementwise(a) ? equal_part(b.bounds) : 0;
  }
  return out;
}

Tensor ParamStore::gradient_of(const Bucket& piece) const {
  return optim::part_of(arenas_[piece.arena].grad, piece.range);
}

Tensor ParamStore::bucket_memory(const Bucket& bucket) const {
  const OwnerScope owner(Owner::gradients);
  return zeros({bucket.elements()}, arenas_[bucket.arena].grad.dtype(), device_);
}

Tensor ParamStore::gradient_in(const Bucket& bucket, const Tensor& memory, std::size_t i) const {
  const StoredParameter& p = parameters_[i];
  return memory.as_strided(p.tensor.shape(), p.tensor.strides(), p.begin - bucket.range.first);
}

Tensor ParamStore::kept_in(const Bucket& bucket, std::span<const Tensor> parts) {
  return optim::part_of(parts[bucket.arena], bucket.kept);
}

std::size_t ParamStore::weight_offset(const Bucket& bucket, std::size_t i) const noexcept {
  return static_cast<std::size_t>(parameters_[i].begin - bucket.range.first) *
         size_of(arenas_[bucket.arena].dtype);
}

Tensor ParamStore::weight_memory(const Bucket& bucket) const {
  const OwnerScope owner(Owner::weights);
  return empty({bucket.elements()}, arenas_[bucket.arena].dtype, device_);
}

Tensor ParamStore::kept_weight(const Bucket& bucket) const {
  return optim::part_of(arenas_[bucket.arena].weight, bucket.kept);
}

std::vector<Tensor> ParamStore::gather_parts(std::span<const Tensor> parts,
                                             const autograd::Peers& peers) const {
  const OwnerScope owner(Owner::gradients);
  std::vector<Tensor> out;
  for (std::size_t a = 0; a < arenas_.size(); ++a) {
    Tensor whole = gather(arenas_[a], parts[a], 1, peers);
    if (peers.rank() == 0) out.push_back(std::move(whole));
  }
  return out;
}

// ---- The norm ----

math::GradientSummary ParamStore::summary_in_order(const math::StepPolicy& policy,
                                                   const autograd::Peers& peers) const {
  const OwnerScope owner(Owner::gradients);
  const std::int64_t size = chunk_size();
  const std::vector<Tensor> parts = gradients();
  // Process the buckets in the order of the arenas, moving a window over the gradient.
  std::vector<const Bucket*> ascending;
  for (const Bucket& b : buckets_) ascending.push_back(&b);
  std::sort(ascending.begin(), ascending.end(), [](const Bucket* x, const Bucket* y) {
    return std::pair(x->arena, x->range.first) < std::pair(y->arena, y->range.first);
  });
  Tensor window;
  std::int64_t begin = 0;  // first element of the window in the arena
  for (const Bucket* b : ascending) {
    const Arena& a = arenas_[b->arena];
    kernels::OptimizerArena view = views_[b->arena];
    const std::int64_t first = b->range.first / size;  // chunk in which the bucket begins
    const Tensor next = empty({b->range.last - first * size}, a.grad.dtype(), device_);
    if (const std::int64_t carried = b->range.first - first * size; carried > 0)
      kernels::copy(optim::part_of(window, {first * size - begin, b->range.first - begin}).view(),
                    optim::part_of(next, {0, carried}).mutable_view(), stream());
    window = next;
    begin = first * size;
    const Tensor flat = optim::part_of(window, {b->range.first - begin, b->range.last - begin});
    const auto r = static_cast<std::size_t>(peers.rank());
    if (b->kept.size() > 0)
      kernels::copy(kept_in(*b, parts).view(),
                    optim::part_of(flat, {b->bounds[r], b->bounds[r + 1]}).mutable_view(),
                    stream());
    gather_bounds(flat, b->bounds, peers);
    // A chunk in which a bucket ends is completed by the next bucket.
    const std::int64_t complete = b->range.last == a.elements ? view.chunks : b->range.last / size;
    view.grad = counted_from(window.mutable_view(), begin);
    kernels::optim_partials(memory(), view, first, complete, policy, stream());
  }
  math::GradientSummary out;
  kernels::optim_add_partials(memory(), views_, out, stream());
  return out;
}

}  // namespace firn::optim
