#include "dist/step/bucket_layout.h"

#include <algorithm>
#include <array>
#include <unordered_map>
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

std::vector<Window> BucketLayout::prepare_summary(int rank) const {
  const OwnerScope owner(Owner::gradients);
  const std::int64_t size = store_.chunk_size();
  const auto r = static_cast<std::size_t>(rank);
  // The buckets in the order of the arenas.
  std::vector<const Bucket*> ascending;
  for (const Bucket& b : buckets_) ascending.push_back(&b);
  std::sort(ascending.begin(), ascending.end(), [](const Bucket* x, const Bucket* y) {
    return std::pair(x->arena, x->range.first) < std::pair(y->arena, y->range.first);
  });
  std::int64_t longest = 0;
  for (const Bucket* b : ascending)
    longest = std::max(longest, b->range.last - b->range.first / size * size);
  std::unordered_map<DType, std::array<Tensor, 2>> memory;
  std::vector<Window> out;
  Tensor before;
  std::int64_t begin = 0;  // first element of `before` in the arena
  for (const Bucket* b : ascending) {
    const Arena& a = arena_of(*b);
    Tensor& window = memory[a.grad.dtype()][out.size() % 2];
    if (!window.defined()) window = empty({longest}, a.grad.dtype(), store_.device());
    const std::int64_t first = b->range.first / size;  // chunk in which the bucket begins
    const std::int64_t carried = b->range.first - first * size;
    const Tensor flat = part_of(window, {carried, carried + b->elements()});
    Window w{.gathering = Gathering(flat, b->bounds, rank), .view = store_.arenas()[b->arena]};
    if (carried > 0) {
      w.carried_from = part_of(before, {first * size - begin, b->range.first - begin});
      w.carried_to = part_of(window, {0, carried});
    }
    if (b->kept.size() > 0) {
      w.kept = b->kept_in(store_.gradients());
      w.own = part_of(flat, {b->bounds[r], b->bounds[r + 1]});
    }
    // A chunk in which a bucket ends is completed by the next bucket.
    w.first = first;
    w.complete = b->range.last == a.elements ? w.view.chunks : b->range.last / size;
    w.view.grad = counted_from(window.mutable_view(), first * size);
    out.push_back(std::move(w));
    before = window;
    begin = first * size;
  }
  return out;
}

math::GradientSummary BucketLayout::summary_in_order(std::span<const Window> windows,
                                                     const math::StepPolicy& policy,
                                                     const autograd::Peers& peers) const {
  const Stream stream = store_.stream();
  for (const Window& w : windows) {
    if (w.carried_to.defined())
      kernels::copy(w.carried_from.view(), w.carried_to.mutable_view(), stream);
    if (w.own.defined()) kernels::copy(w.kept.view(), w.own.mutable_view(), stream);
    w.gathering.run(peers);
    kernels::optim_partials(store_.memory(), w.view, w.first, w.complete, policy, stream);
  }
  math::GradientSummary out;
  kernels::optim_add_partials(store_.memory(), store_.arenas(), out, stream);
  return out;
}

}  // namespace firn::optim
