#include "optim/store/shown_weights.h"

#include "base/check.h"
#include "firn/runtime/kernel_support.h"

namespace firn::optim {
namespace {

/// Returns `part` of each of an arena's tensors.
template <class Part>
kernels::ScheduleFreeWeights weights_of(const Tensor& weight, const Tensor& master,
                                        const std::vector<Tensor>& states,
                                        const kernels::UpdateRule& rule, const Part& part) {
  return {part(weight), master.defined() ? part(master) : View(), part(states[0]), part(states[1]),
          std::get<math::ScheduleFree>(rule).beta1};
}

}  // namespace

void ParamStore::Modes::show(bool averaged) {
  if (kept_ || runtime::dry_run()) return;
  const bool capturing = runtime::capturing(store_.device_);
  FIRN_CHECK(averaged == averaged_ || !capturing, store_.op_,
             "call the model once in the same mode before the graph is recorded; evaluate outside "
             "of graphs",
             "a graph cannot record the change from {} weights to {} ones",
             averaged_ ? "averaged" : "training", averaged ? "averaged" : "training");
  if (capturing)
    runtime::on_replay(store_.device_, [modes = std::weak_ptr<Modes*>(self_), averaged] {
      if (const auto alive = modes.lock()) (*alive)->show(averaged);
    });
  if (averaged == averaged_) return;
  store_.adopt_weights();
  for (const Arena& a : store_.arenas_)
    kernels::optim_show_weights(weights_of(a.weight, a.master, a.states, a.rule,
                                           [](const Tensor& t) { return t.mutable_view(); }),
                                averaged, store_.stream());
  averaged_ = averaged;
  note_change();
  store_.bump_all_versions(averaged ? "a module in evaluation mode, which shows averaged weights"
                                    : "the change back to training weights");
}

void ParamStore::Modes::adopt(const StoredParameter& p) const {
  const Arena& a = store_.arenas_[p.arena];
  const auto part = [&](const Tensor& t) {
    return t.as_strided({p.tensor.numel()}, {1}, p.begin).mutable_view();
  };
  kernels::optim_adopt_shown(weights_of(a.weight, a.master, a.states, a.rule, part), averaged_,
                             store_.stream());
}

}  // namespace firn::optim
