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
  std::vector<kernels::OptimizerArena> views;
  bool gradients_sharded = false, weights_sharded = false;
  std::vector<Ref<Storage>> norm_tables;   ///< tables for the norm over the whole arenas
  std::vector<Ref<Storage>> chunk_orders;  ///< chunk orders of the views, with sharded gradients
  NonElementwiseUpdates non_elementwise;
};

std::shared_ptr<ParamStore::Shards> ParamStore::prepare_shards(const ShardPlan& plan) const {
  const runtime::OpScope op("optimizer");
  auto out = std::make_shared<Shards>();
  out->arenas = arenas_;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    Arena& a = out->arenas[i];
    for (const ArenaRun& run : a.runs) {
      out->norm_tables.insert(out->norm_tables.end(), {run.pieces, run.chunk_pieces});
      if (plan.gradients)
        out->norm_tables.push_back(out->chunk_orders.emplace_back(chunk_order(run)));
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
          kernels::copy(part_of(t, mine).view(),
                        part_of(own, {run.at / unit, run.at / unit + mine.size()}).mutable_view(),
                        stream());
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
  out->views = views_of(out->arenas, *out->partials);
  out->non_elementwise = set_up_non_elementwise(out->arenas, out->views);
  out->non_elementwise.copy_states(non_elementwise_, stream());
  return out;
}

void ParamStore::shard(Shards& shards) noexcept {
  arenas_.swap(shards.arenas);
  gradients_.swap(shards.gradients);
  update_views_.swap(shards.views);
  norm_tables_.swap(shards.norm_tables);
  update_partials_ = std::move(shards.partials);
  gradients_sharded_ = shards.gradients_sharded;
  weights_sharded_ = shards.weights_sharded;
  std::swap(non_elementwise_, shards.non_elementwise);
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
    if (const Ref<Storage>& order = shards.chunk_orders[i])
      views_[i].chunk_order = static_cast<const std::int64_t*>(order->data());
  for (StoredParameter& p : parameters_) {
    p.leaf->arena = p.gradient = Tensor();
    if (weights_sharded_ && p.storage->bytes() > 0) p.storage->set_provider(nullptr);
  }
}

}  // namespace firn::optim
