// Arenas that keep a shard of their elements, after another module has decided which. The update
// then has views of the shard alone, and the norm those of the whole arenas.
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "optim/store/flat.h"
#include "optim/store/param_store.h"

namespace firn::optim {

struct ParamStore::Shards {
  std::vector<Arena> arenas;
  std::vector<Tensor> gradients;
  Ref<Storage> partials;
  std::vector<kernels::OptimizerArena> update_views, views;
  bool gradients_sharded = false, weights_sharded = false;
  std::vector<Ref<Storage>> norm_tables;  ///< tables for the norm over the whole arenas
  NonElementwiseUpdates non_elementwise;
  std::vector<Tensor> gradients_of;  ///< StoredParameter::gradient, if gradients are sharded
  std::vector<std::pair<Tensor, Tensor>> kept;  ///< parts of the old arenas, and their new places
};

std::shared_ptr<ParamStore::Shards> ParamStore::prepare_shards(const ShardPlan& plan) const {
  const runtime::OpScope op("optimizer");
  auto out = std::make_shared<Shards>();
  out->arenas = arenas_;
  out->views = views_;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    Arena& a = out->arenas[i];
    for (const ArenaRun& run : a.runs) {
      out->norm_tables.insert(out->norm_tables.end(), {run.pieces, run.chunk_pieces});
      if (!plan.gradients) continue;
      const Ref<Storage>& order = out->norm_tables.emplace_back(chunk_order(run));
      if (order) out->views[i].chunk_order = static_cast<const std::int64_t*>(order->data());
    }
    a.runs = plan.runs[i];
    const std::int64_t elements = a.runs.back().at + a.runs.back().kept.size();
    const auto keep = [&](Tensor& t, Owner owner, std::int64_t unit = 1) {
      if (!t.defined()) return;
      const OwnerScope scope(owner);
      const Tensor own = owner == Owner::weights ? zeros({elements}, t.dtype(), device_)
                                                 : state_memory(owner, t.dtype(), elements / unit);
      for (const ArenaRun& run : a.runs) {
        const Share mine{run.kept.first / unit, run.kept.last / unit};
        if (mine.size() > 0)
          out->kept.emplace_back(part_of(t, mine),
                                 part_of(own, {run.at / unit, run.at / unit + mine.size()}));
      }
      t = own;
    };
    if (plan.gradients) {
      const OwnerScope owner(Owner::gradients);
      a.grad = zeros({elements}, a.grad.dtype(), device_);
    }
    if (plan.weights) keep(a.weight, Owner::weights);
    keep(a.master, Owner::masters);
    keep(a.ema, Owner::optimizer);
    for (Tensor& t : a.states) keep(t, Owner::optimizer);
    for (Tensor& t : a.scales) keep(t, Owner::optimizer, math::kStateBlock);
    for (ArenaRun& run : a.runs) make_tables(a, run);
    out->gradients.push_back(a.grad);
  }
  out->gradients_sharded = plan.gradients;
  out->weights_sharded = plan.weights;
  out->partials = reserve_partials(out->arenas);
  out->update_views = views_of(out->arenas, *out->partials);
  out->non_elementwise = set_up_non_elementwise(out->arenas, out->update_views);
  for (kernels::OptimizerArena& v : out->views) {  // states are no longer here
    v.master = v.ema = View();
    for (View& state : v.states) state = View();
    for (View& scale : v.scales) scale = View();
    v.trust_partials = nullptr;
    v.trust_ratios = nullptr;
    if (plan.gradients) v.grad.data = nullptr;
    if (plan.weights) v.weight.data = nullptr;
  }
  if (plan.gradients) out->gradients_of.resize(parameters_.size());
  return out;
}

void ParamStore::swap_shards(Shards& shards) noexcept {
  arenas_.swap(shards.arenas);
  gradients_.swap(shards.gradients);
  views_.swap(shards.views);
  update_views_.swap(shards.update_views);
  norm_tables_.swap(shards.norm_tables);
  std::swap(update_partials_, shards.partials);
  std::swap(gradients_sharded_, shards.gradients_sharded);
  std::swap(weights_sharded_, shards.weights_sharded);
  std::swap(non_elementwise_, shards.non_elementwise);
  for (std::size_t i = 0; i < shards.gradients_of.size(); ++i) {
    std::swap(parameters_[i].gradient, shards.gradients_of[i]);
    parameters_[i].leaf->arena = parameters_[i].gradient;
  }
}

void ParamStore::fill_shards(const Shards& shards) const {
  for (const auto& [from, to] : shards.kept)
    kernels::copy(from.view(), to.mutable_view(), stream());
  non_elementwise_.copy_states(shards.non_elementwise, stream());
}

}  // namespace firn::optim
