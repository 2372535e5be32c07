#include "dist/step/bucket_layout.h"

#include <algorithm>
#include <utility>

#include "dist/step/bucket_size.h"
#include "dist/step/shards.h"
#include "firn/memory/labels.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/store/flat.h"

namespace firn::optim {

Tensor Bucket::kept_in(std::span<const Tensor> parts) const { return part_of(parts[arena], kept); }

std::vector<Share> bucket_ranges(const ParamStore& store, const Arena& a) {
  const auto size = static_cast<std::int64_t>(size_of(a.grad.dtype()));
  std::vector<Share> out;
  std::int64_t last = a.elements;
  // Go from the back, which backward passes finish first, so that the last bucket exchanged is the
  // small one.
  for (auto i = a.parameters.rbegin(); i != a.parameters.rend(); ++i) {
    const std::int64_t begin = store.places()[*i].begin;
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

std::vector<Bucket> pieces_of(const ParamStore& store) {
  std::vector<Bucket> out;
  const auto arenas = store.layout();
  const auto parameters = store.places();
  for (std::size_t a = 0; a < arenas.size(); ++a)
    for (const Share& range : bucket_ranges(store, arenas[a])) {
      Bucket& b = out.emplace_back();
      b.arena = a;
      b.range = range;
      for (const std::size_t i : arenas[a].parameters)
        if (parameters[i].begin >= range.first && parameters[i].begin < range.last)
          b.parameters.push_back(i);
    }
  // A bucket is complete when its first parameter in the order of use has its gradient.
  std::stable_sort(out.begin(), out.end(), [](const Bucket& x, const Bucket& y) {
    return x.parameters.front() > y.parameters.front();
  });
  return out;
}

// ---- Sharded buckets ----

BucketLayout::BucketLayout(const ParamStore& store, int rank)
    : store_(store), buckets_(pieces_of(store)) {
  const auto r = static_cast<std::size_t>(rank);
  for (Bucket& b : buckets_) {
    const Arena& a = arena_of(b);
    const ArenaRun& run = run_of(a, store_.places()[b.parameters.front()]);
    b.bounds = from_begin(run.bounds, b.range);
    const std::int64_t at = run.place_of(b.range.first + b.bounds[r]);
    b.kept = {at, at + b.bounds[r + 1] - b.bounds[r]};
    b.equal_part = is_elementwise(a) ? equal_part(b.bounds) : 0;
  }
}

Tensor BucketLayout::gradient_memory(const Bucket& bucket) const {
  const OwnerScope owner(Owner::gradients);
  return zeros({bucket.elements()}, arena_of(bucket).grad.dtype(), store_.device());
}

Tensor BucketLayout::gradient_in(const Bucket& bucket, const Tensor& memory, std::size_t i) const {
  const StoredParameter& p = store_.places()[i];
  return memory.as_strided(p.tensor.shape(), p.tensor.strides(), p.begin - bucket.range.first);
}

Tensor BucketLayout::weight_memory(const Bucket& bucket) const {
  const OwnerScope owner(Owner::weights);
  return empty({bucket.elements()}, arena_of(bucket).dtype, store_.device());
}

Tensor BucketLayout::kept_weight(const Bucket& bucket) const {
  return part_of(arena_of(bucket).weight, bucket.kept);
}

std::size_t BucketLayout::weight_offset(const Bucket& bucket, std::size_t i) const noexcept {
  return static_cast<std::size_t>(store_.places()[i].begin - bucket.range.first) *
         size_of(arena_of(bucket).dtype);
}

// ---- The norm ----

math::GradientSummary BucketLayout::summary_in_order(const math::StepPolicy& policy,
                                                     const autograd::Peers& peers) const {
  const OwnerScope owner(Owner::gradients);
  const std::int64_t size = store_.chunk_size();
  const std::vector<Tensor> parts = store_.gradients();
  // Process the buckets in the order of the arenas, moving a window over the gradient.
  std::vector<const Bucket*> ascending;
  for (const Bucket& b : buckets_) ascending.push_back(&b);
  std::sort(ascending.begin(), ascending.end(), [](const Bucket* x, const Bucket* y) {
    return std::pair(x->arena, x->range.first) < std::pair(y->arena, y->range.first);
  });
  Tensor window;
  std::int64_t begin = 0;  // first element of the window in the arena
  for (const Bucket* b : ascending) {
    const Arena& a = arena_of(*b);
    kernels::OptimizerArena view = store_.arenas()[b->arena];
    const std::int64_t first = b->range.first / size;  // chunk in which the bucket begins
    const Tensor next = empty({b->range.last - first * size}, a.grad.dtype(), store_.device());
    if (const std::int64_t carried = b->range.first - first * size; carried > 0)
      kernels::copy(part_of(window, {first * size - begin, b->range.first - begin}).view(),
                    part_of(next, {0, carried}).mutable_view(), store_.stream());
    window = next;
    begin = first * size;
    const Tensor flat = part_of(window, {b->range.first - begin, b->range.last - begin});
    const auto r = static_cast<std::size_t>(peers.rank());
    if (b->kept.size() > 0)
      kernels::copy(b->kept_in(parts).view(),
                    part_of(flat, {b->bounds[r], b->bounds[r + 1]}).mutable_view(),
                    store_.stream());
    gather_bounds(flat, b->bounds, peers);
    // A chunk in which a bucket ends is completed by the next bucket.
    const std::int64_t complete = b->range.last == a.elements ? view.chunks : b->range.last / size;
    view.grad = counted_from(window.mutable_view(), begin);
    kernels::optim_partials(store_.memory(), view, first, complete, policy, store_.stream());
  }
  math::GradientSummary out;
  kernels::optim_add_partials(store_.memory(), store_.arenas(), out, store_.stream());
  return out;
}

}  // namespace firn::optim
