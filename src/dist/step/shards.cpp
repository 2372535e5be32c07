#include "dist/step/shards.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "dist/step/bucket_layout.h"
#include "kernels/copy.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

/// Returns the bounds of equal shards of whole units. The last rank also has what is left over.
std::vector<std::int64_t> even_bounds(const Share& range, int ranks, std::int64_t unit) {
  std::vector<std::int64_t> out;
  const std::int64_t part = range.size() / ranks / unit * unit;
  for (int r = 0; r < ranks; ++r) out.push_back(range.first + r * part);
  out.push_back(range.last);
  return out;
}

/// Returns the bounds of shards that begin with a parameter and are as equal as possible. `begins`
/// are ascending.
std::vector<std::int64_t> bounds_at(const std::vector<std::int64_t>& begins, std::int64_t elements,
                                    int ranks) {
  std::vector<std::int64_t> out{0};
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t ideal = elements / ranks * r;
    const auto after = std::lower_bound(begins.begin(), begins.end(), ideal);
    std::int64_t best = after == begins.end() ? elements : *after;
    if (after != begins.begin() && ideal - *(after - 1) < best - ideal) best = *(after - 1);
    out.push_back(std::max(best, out.back()));
  }
  out.push_back(elements);
  return out;
}

/// Returns the bounds between the shards of `ranks` ranks.
std::vector<std::int64_t> bounds_of(const ParamStore& store, const Arena& a, const Share& range,
                                    int ranks) {
  if (is_elementwise(a)) return even_bounds(range, ranks, unit_of(a));
  std::vector<std::int64_t> begins;
  for (const std::size_t i : a.parameters) begins.push_back(store.places()[i].begin);
  return bounds_at(begins, a.elements, ranks);
}

/// Returns the runs of an arena, which ranks shard: from stage 2 on the buckets of elementwise
/// rules, else the whole arena.
std::vector<ArenaRun> runs_of(const ParamStore& store, const Arena& a, int stage, int rank,
                              int ranks) {
  std::vector<ArenaRun> out;
  const auto r = static_cast<std::size_t>(rank);
  std::int64_t at = 0;
  for (const Share& range : stage > 1 && is_elementwise(a) ? bucket_ranges(store, a)
                                                           : std::vector<Share>{{0, a.elements}}) {
    ArenaRun& run = out.emplace_back();
    run.range = range;
    run.bounds = bounds_of(store, a, range, ranks);
    run.kept = {run.bounds[r], run.bounds[r + 1]};
    run.at = at;
    at += run.kept.size();
  }
  return out;
}

}  // namespace

ShardPlan plan_shards(const ParamStore& store, int stage, int rank, int ranks) {
  constexpr const char* kWhole = "set DistributeOptions::zero to 0";
  FIRN_CHECK(!is_schedule_free(store.layout().front().rule), store.op(), kWhole,
             "schedule-free weights are made of states that each rank needs whole");
  if (stage > 2)
    for (std::size_t i = 0; i < store.places().size(); ++i)
      FIRN_CHECK(!store.weight(i).place_is_held(), store.op(),
                 "have the other library release it, or give it a clone()",
                 "{}, is in use by another library, and the memory of sharded weights goes away",
                 store.label(i));
  ShardPlan out{.runs = {}, .gradients = stage > 1, .weights = stage > 2};
  for (const Arena& a : store.layout()) out.runs.push_back(runs_of(store, a, stage, rank, ranks));
  return out;
}

std::vector<std::int64_t> from_begin(const std::vector<std::int64_t>& bounds, const Share& range) {
  std::vector<std::int64_t> out;
  for (const std::int64_t b : bounds)
    out.push_back(std::clamp(b, range.first, range.last) - range.first);
  return out;
}

std::int64_t equal_part(const std::vector<std::int64_t>& bounds) noexcept {
  const std::int64_t part = bounds[1];
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  if (ranks * part > bounds.back()) return 0;
  for (std::int64_t r = 0; r < ranks; ++r)
    if (bounds[static_cast<std::size_t>(r)] != r * part) return 0;
  return part;
}

// ---- Gathering ----

Gathering::Gathering(const Tensor& flat, const std::vector<std::int64_t>& bounds, int rank) {
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  const std::int64_t part = equal_part(bounds);
  const bool even = part > 0;
  if (even) {
    part_ = part_of(flat, {rank * part, (rank + 1) * part});
    parts_ = part_of(flat, {0, ranks * part});
  }
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Share left{even ? (r + 1) * part : bounds[i], bounds[i + 1]};
    if (left.size() > 0) rest_.emplace_back(part_of(flat, left), static_cast<int>(r));
  }
}

void Gathering::run(const autograd::Peers& peers) const {
  if (part_.defined()) peers.all_gather(part_, parts_);
  for (const auto& [part, rank] : rest_) peers.broadcast(part, rank);
}

std::vector<Gathering> gather_weights(const ParamStore& store, int rank) {
  std::vector<Gathering> out;
  if (!store.sharded() || store.weights_sharded()) return out;
  for (const Arena& a : store.layout())
    for (const ArenaRun& run : a.runs)
      out.emplace_back(part_of(a.weight, run.range), from_begin(run.bounds, run.range), rank);
  return out;
}

Tensor gather_arena(const ParamStore& store, std::size_t arena, const Tensor& kept,
                    const autograd::Peers& peers) {
  const Arena& a = store.layout()[arena];
  Tensor whole;
  autograd::on_every_rank(store.op().c_str(), &peers,
                          [&] { whole = empty({a.elements}, kept.dtype(), store.device()); });
  for (const ArenaRun& run : a.runs) {
    const Tensor mine = part_of(whole, run.kept);
    if (mine.numel() > 0)
      kernels::copy(part_of(kept, {run.at, run.at + run.kept.size()}).view(), mine.mutable_view(),
                    store.stream());
    Gathering(part_of(whole, run.range), from_begin(run.bounds, run.range), peers.rank())
        .run(peers);
  }
  return whole;
}

}  // namespace firn::optim
