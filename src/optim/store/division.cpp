// State that is divided over ranks (ZeRO, Rajbhandari et al. 2020): of masters, averages and states
// a rank keeps a part, updates the weights that belong to it, and receives the others'.
#include "optim/store/division.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/kernel_support.h"
#include "kernels/copy.h"

namespace firn::optim {
namespace {

/// Elements of a flat tensor.
Tensor part_of(const Tensor& flat, const Share& part) {
  return flat.as_strided({part.size()}, {1}, part.first);
}

/// Equal parts of whole units; the last rank also has what is left over.
std::vector<std::int64_t> even_bounds(std::int64_t elements, int ranks, std::int64_t unit) {
  std::vector<std::int64_t> out;
  const std::int64_t part = elements / ranks / unit * unit;
  for (int r = 0; r < ranks; ++r) out.push_back(r * part);
  out.push_back(elements);
  return out;
}

/// Parts that begin with a parameter, as equal as that lets them be. `begins` are ascending.
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

/// Each rank has its part of a flat tensor, between its bounds: all receive all.
void gather_parts(const Tensor& flat, std::span<const std::int64_t> bounds,
                  const autograd::Peers& peers) {
  const auto ranks = static_cast<std::int64_t>(bounds.size()) - 1;
  const std::int64_t part = bounds[1];
  bool even = ranks * part <= bounds[static_cast<std::size_t>(ranks)];
  for (std::int64_t r = 0; r < ranks; ++r)
    even = even && bounds[static_cast<std::size_t>(r)] == r * part;
  if (even && part > 0)
    peers.all_gather(part_of(flat, {peers.rank() * part, (peers.rank() + 1) * part}),
                     part_of(flat, {0, ranks * part}));
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Share left{even ? (r + 1) * part : bounds[i], bounds[i + 1]};
    if (left.size() > 0) peers.broadcast(part_of(flat, left), static_cast<int>(r));
  }
}

}  // namespace

// ---- Whose is what ----

std::vector<std::int64_t> ParamStore::bounds_of(const Arena& a, int ranks) const {
  const bool elementwise =
      !a.whole && !std::visit([](const auto& rule) { return math::has_trust_ratio(rule); }, a.rule);
  if (elementwise) return even_bounds(a.elements, ranks, unit_of(a));
  std::vector<std::int64_t> begins;
  for (const std::size_t i : a.parameters) begins.push_back(parameters_[i].begin);
  return bounds_at(begins, a.elements, ranks);
}

int ParamStore::owner_of(const Arena& a, const Parameter& p) noexcept {
  const auto after = std::upper_bound(a.bounds.begin(), a.bounds.end(), p.begin);
  return static_cast<int>(after - a.bounds.begin()) - 1;
}

Share ParamStore::kept_of(const Arena& a, const Parameter& p) noexcept {
  const std::int64_t end = p.begin + p.tensor.numel();
  const std::int64_t first = std::max(p.begin, a.kept.first);
  return {first, std::max(first, std::min(end, a.kept.last))};
}

// ---- The division ----

std::shared_ptr<ParamStore::Division> ParamStore::prepare_division(int rank, int ranks) const {
  constexpr const char* kWhole = "set DistributeOptions::zero to 0";
  FIRN_CHECK(!modes_, op_, kWhole,
             "schedule-free weights are made of states that each rank needs whole");
  FIRN_CHECK(device_.is_cpu(), op_, kWhole,
             "states are divided on the CPU, and the parameters are on {}", device_);
  const runtime::OpScope op("optimizer");
  auto out = std::make_shared<Division>();
  out->arenas = arenas_;
  const auto r = static_cast<std::size_t>(rank);
  for (Arena& a : out->arenas) {
    out->norm_tables.insert(out->norm_tables.end(), {a.pieces, a.chunk_pieces});
    a.bounds = bounds_of(a, ranks);
    a.kept = {a.bounds[r], a.bounds[r + 1]};
    const auto keep = [&](Tensor& t, Owner owner, std::int64_t unit = 1) {
      if (!t.defined()) return;
      const Share mine{a.kept.first / unit, a.kept.last / unit};
      const Tensor own = state_memory(owner, t.dtype(), mine.size());
      if (mine.size() > 0) kernels::copy(part_of(t, mine).view(), own.mutable_view(), stream());
      t = own;
    };
    keep(a.master, Owner::masters);
    keep(a.ema, Owner::optimizer);
    for (Tensor& t : a.states) keep(t, Owner::optimizer);
    for (Tensor& t : a.scales) keep(t, Owner::optimizer, math::kStateBlock);
    make_tables(a);
  }
  for (const Arena& a : out->arenas) out->views.push_back(view_of(a, out->views));
  out->whole = set_up_whole(out->arenas, out->views);
  out->whole.copy_states(whole_, stream());
  return out;
}

void ParamStore::divide(Division& division) noexcept {
  arenas_.swap(division.arenas);
  update_views_.swap(division.views);
  norm_tables_.swap(division.norm_tables);
  std::swap(whole_, division.whole);
  for (kernels::OptimizerArena& v : views_) {  // what it says of states is gone
    v.master = v.ema = View();
    for (View& state : v.states) state = View();
    for (View& scale : v.scales) scale = View();
    v.trust_partials = nullptr;
    v.trust_ratios = nullptr;
  }
}

// ---- What all need ----

void ParamStore::gather_weights(const autograd::Peers& peers) const {
  for (const Arena& a : arenas_) gather_parts(a.weight, a.bounds, peers);
}

Tensor ParamStore::gather(const Arena& a, const Tensor& kept, std::int64_t unit,
                          const autograd::Peers& peers) const {
  std::vector<std::int64_t> bounds;
  for (const std::int64_t b : a.bounds) bounds.push_back(b / unit);
  const Tensor whole = empty({bounds.back()}, kept.dtype(), device_);
  const Tensor mine = part_of(whole, {a.kept.first / unit, a.kept.last / unit});
  if (mine.numel() > 0) kernels::copy(kept.view(), mine.mutable_view(), stream());
  gather_parts(whole, bounds, peers);
  return whole;
}

StateEntry ParamStore::entry_of(std::string name, const Arena& a, const Parameter& p,
                                const Tensor& kept, std::int64_t unit, const Tensor& whole) const {
  const std::int64_t begin = p.begin / unit, count = math::ceil_div(p.tensor.numel(), unit);
  const Shape shape = unit == 1 ? p.tensor.shape() : Shape{count};
  const Strides strides = unit == 1 ? p.tensor.strides() : Strides{1};
  StateEntry out{std::move(name), {}};
  if (!divided()) {
    out.tensor = kept.as_strided(shape, strides, begin);
    return out;
  }
  out.tensor = whole.defined() ? whole.as_strided(shape, strides, begin)
                               : zeros({}, kept.dtype(), device_).expand(shape);
  // What both have: of the parameter, and of what is kept.
  const Share mine{std::max(begin, a.kept.first / unit),
                   std::min(begin + count, a.kept.last / unit)};
  out.prepare = [this, kept, shape, strides, mine, begin, count,
                 from = a.kept.first / unit](const Tensor& read) -> std::function<void()> {
    if (mine.size() <= 0) return [] {};
    const Tensor flat = empty({count}, read.dtype(), device_);  // in the order of the arena
    kernels::copy(read.view(), flat.as_strided(shape, strides).mutable_view(), stream());
    return [this, to = part_of(kept, {mine.first - from, mine.last - from}),
            part = part_of(flat, {mine.first - begin, mine.last - begin})] {
      kernels::copy(part.view(), to.mutable_view(), stream());
    };
  };
  return out;
}

}  // namespace firn::optim
