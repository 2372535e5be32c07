// State that is sharded over ranks (ZeRO, Rajbhandari et al. 2020). A rank keeps a shard of
// masters, averages and states, updates the weights that belong to it, and receives those of other
// ranks.
#include "optim/store/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"

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

}  // namespace

// ---- Ranks and their shards ----

std::vector<std::int64_t> ParamStore::bounds_of(const Arena& a, const Share& range,
                                                int ranks) const {
  if (is_elementwise(a)) return even_bounds(range, ranks, unit_of(a));
  std::vector<std::int64_t> begins;
  for (const std::size_t i : a.parameters) begins.push_back(parameters_[i].begin);
  return bounds_at(begins, a.elements, ranks);
}

std::vector<ArenaRun> ParamStore::runs_of(const Arena& a, int stage, int rank, int ranks) const {
  std::vector<ArenaRun> out;
  const auto r = static_cast<std::size_t>(rank);
  std::int64_t at = 0;
  for (const Share& range :
       stage > 1 && is_elementwise(a) ? bucket_ranges(a) : std::vector<Share>{{0, a.elements}}) {
    ArenaRun& run = out.emplace_back();
    run.range = range;
    run.bounds = bounds_of(a, range, ranks);
    run.kept = {run.bounds[r], run.bounds[r + 1]};
    run.at = at;
    at += run.kept.size();
  }
  return out;
}

// ---- Sharding ----

std::shared_ptr<ParamStore::Sharding> ParamStore::prepare_sharding(int stage, int rank,
                                                                   int ranks) const {
  constexpr const char* kWhole = "set DistributeOptions::zero to 0";
  FIRN_CHECK(!modes_, op_, kWhole,
             "schedule-free weights are made of states that each rank needs whole");
  if (stage > 2)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      FIRN_CHECK(!parameters_[i].storage->place_is_held(), op_,
                 "have the other library release it, or give it a clone()",
                 "{}, is in use by another library, and the memory of sharded weights goes away",
                 label(i));
  const runtime::OpScope op("optimizer");
  auto out = std::make_shared<Sharding>();
  out->arenas = arenas_;
  for (Arena& a : out->arenas) {
    for (const ArenaRun& run : a.runs) {
      out->norm_tables.insert(out->norm_tables.end(), {run.pieces, run.chunk_pieces});
      if (stage > 1) out->norm_tables.push_back(out->chunk_orders.emplace_back(chunk_order(run)));
    }
    a.runs = runs_of(a, stage, rank, ranks);
    const std::int64_t elements = a.runs.back().at + a.runs.back().kept.size();
    const auto keep = [&](Tensor& t, Owner owner, std::int64_t unit = 1) {
      if (!t.defined()) return;
      const OwnerScope scope(owner);
      const Tensor own = owner == Owner::weights ? zeros({elements}, t.dtype(), device_)
                                                 : state_memory(owner, t.dtype(), elements / unit);
      for (const ArenaRun& run : a.runs) {
        const Share mine{run.kept.first / unit, run.kept.last / unit};
        if (mine.size() > 0)
          kernels::copy(part_of(t, mine).view(),
                        part_of(own, {run.at / unit, run.at / unit + mine.size()}).mutable_view(),
                        stream());
      }
      t = own;
    };
    if (stage > 1) {
      const OwnerScope owner(Owner::gradients);
      a.grad = zeros({elements}, a.grad.dtype(), device_);
    }
    if (stage > 2) keep(a.weight, Owner::weights);
    keep(a.master, Owner::masters);
    keep(a.ema, Owner::optimizer);
    for (Tensor& t : a.states) keep(t, Owner::optimizer);
    for (Tensor& t : a.scales) keep(t, Owner::optimizer, math::kStateBlock);
    for (ArenaRun& run : a.runs) make_tables(a, run);
  }
  if (stage > 1) out->buckets = buckets_of(out->arenas, rank);
  out->weights = stage > 2;
  out->partials = reserve_partials(out->arenas);
  out->views = views_of(out->arenas, *out->partials);
  out->non_elementwise = set_up_non_elementwise(out->arenas, out->views);
  out->non_elementwise.copy_states(non_elementwise_, stream());
  return out;
}

void ParamStore::shard(Sharding& sharding) noexcept {
  arenas_.swap(sharding.arenas);
  update_views_.swap(sharding.views);
  norm_tables_.swap(sharding.norm_tables);
  update_partials_ = std::move(sharding.partials);
  buckets_.swap(sharding.buckets);
  weights_sharded_ = sharding.weights;
  std::swap(non_elementwise_, sharding.non_elementwise);
  for (kernels::OptimizerArena& v : views_) {  // states are no longer here
    v.master = v.ema = View();
    for (View& state : v.states) state = View();
    for (View& scale : v.scales) scale = View();
    v.trust_partials = nullptr;
    v.trust_ratios = nullptr;
    if (gradients_sharded()) v.grad.data = nullptr;
    if (weights_sharded_) v.weight.data = nullptr;
  }
  if (!gradients_sharded()) return;
  for (std::size_t i = 0; i < views_.size(); ++i)
    if (const Ref<Storage>& order = sharding.chunk_orders[i])
      views_[i].chunk_order = static_cast<const std::int64_t*>(order->data());
  for (StoredParameter& p : parameters_) {
    p.leaf->arena = p.gradient = Tensor();
    if (weights_sharded_ && p.storage->bytes() > 0) p.storage->set_provider(nullptr);
  }
}

// ---- Gathering ----

void ParamStore::gather_bounds(const Tensor& flat, const std::vector<std::int64_t>& bounds,
                               const autograd::Peers& peers) {
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  const std::int64_t part = equal_part(bounds);
  const bool even = part > 0;
  if (even)
    peers.all_gather(part_of(flat, {peers.rank() * part, (peers.rank() + 1) * part}),
                     part_of(flat, {0, ranks * part}));
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Share left{even ? (r + 1) * part : bounds[i], bounds[i + 1]};
    if (left.size() > 0) peers.broadcast(part_of(flat, left), static_cast<int>(r));
  }
}

void ParamStore::gather_weights(const autograd::Peers& peers) const {
  if (weights_sharded_) return;
  for (const Arena& a : arenas_)
    for (const ArenaRun& run : a.runs)
      gather_bounds(part_of(a.weight, run.range), from_begin(run.bounds, run.range), peers);
}

Tensor ParamStore::gather(const Arena& a, const Tensor& kept, std::int64_t unit,
                          const autograd::Peers& peers) const {
  Tensor whole;
  autograd::on_every_rank(op_.c_str(), &peers,
                          [&] { whole = empty({a.elements / unit}, kept.dtype(), device_); });
  for (const ArenaRun& run : a.runs) {
    const auto in_units = [unit](const Share& s) { return Share{s.first / unit, s.last / unit}; };
    const Tensor mine = part_of(whole, in_units(run.kept));
    if (mine.numel() > 0)
      kernels::copy(part_of(kept, in_units({run.at, run.at + run.kept.size()})).view(),
                    mine.mutable_view(), stream());
    std::vector<std::int64_t> bounds = from_begin(run.bounds, run.range);
    for (std::int64_t& b : bounds) b /= unit;
    gather_bounds(part_of(whole, in_units(run.range)), bounds, peers);
  }
  return whole;
}

StateEntry ParamStore::entry_of(std::string name, const Arena& a, const StoredParameter& p,
                                const Tensor& kept, std::int64_t unit,
                                const autograd::Peers* peers) const {
  const ArenaRun& run = run_of(a, p);
  const std::int64_t begin = p.begin / unit, count = math::ceil_div(p.tensor.numel(), unit);
  const Shape shape = unit == 1 ? p.tensor.shape() : Shape{count};
  const Strides strides = unit == 1 ? p.tensor.strides() : Strides{1};
  StateEntry out{std::move(name), {}};
  if (!sharded()) {
    out.tensor = kept.as_strided(shape, strides, begin);
    return out;
  }
  out.tensor = zeros({}, kept.dtype(), device_).expand(shape);
  std::vector<std::int64_t> bounds;  // bounds within the parameter
  for (const std::int64_t b : run.bounds)
    bounds.push_back(std::clamp(b / unit, begin, begin + count) - begin);
  // The elements of the parameter that are kept here.
  const Share mine{std::max(begin, run.kept.first / unit),
                   std::max(begin, std::min(begin + count, run.kept.last / unit))};
  const std::int64_t from = (run.kept.first - run.at) / unit;
  const Tensor part = mine.size() > 0 ? part_of(kept, {mine.first - from, mine.last - from})
                                      : empty({0}, kept.dtype(), device_);
  const bool in_order = unit != 1 || p.tensor.is_contiguous();
  if (in_order) {
    out.parts = {std::move(bounds), part};
  } else if (peers) {  // rank 0 temporarily has the whole
    Tensor flat;
    autograd::on_every_rank(op_.c_str(), peers,
                            [&] { flat = empty({count}, kept.dtype(), device_); });
    if (part.numel() > 0)
      kernels::copy(part.view(),
                    part_of(flat, {mine.first - begin, mine.last - begin}).mutable_view(),
                    stream());
    gather_bounds(flat, bounds, *peers);
    if (peers->rank() == 0) out.tensor = flat.as_strided(shape, strides);
  }
  out.prepare = [this, part, in_order, shape, strides, count,
                 own = Share{mine.first - begin, mine.last - begin}](
                    const Tensor& read) -> std::function<void()> {
    if (part.numel() == 0) return [] {};
    Tensor flat = read;  // elements in the order of the arena
    if (!in_order) {
      flat = empty({count}, read.dtype(), Device::cpu());
      kernels::copy(read.view(), flat.as_strided(shape, strides).mutable_view(),
                    current_stream(Device::cpu()));
    }
    return [this, part, read_part = part_of(flat, own).to(device_)] {
      kernels::copy(read_part.view(), part.mutable_view(), stream());
    };
  };
  return out;
}

StateEntry ParamStore::weight_entry(std::size_t i) const {
  const StoredParameter& p = parameters_[i];
  std::string name = fmt::format("parameters.{}.weight", i);
  if (!weights_sharded_) return {std::move(name), p.tensor.detach()};
  const Arena& a = arenas_[p.arena];
  StateEntry out = entry_of(std::move(name), a, p, a.weight, 1, nullptr);
  out.tensor = p.tensor.detach();  // identifies the weight of a module
  out.prepare = [this, storage = p.storage,
                 prepare = std::move(out.prepare)](const Tensor& read) -> std::function<void()> {
    return [this, storage, write = prepare(read)] {
      write();
      storage->bump_version(op_.c_str());
    };
  };
  return out;
}

}  // namespace firn::optim
