#include "dist/step/stage.h"

#include <span>

#include "autograd/node.h"
#include "kernels/optim.h"
#include "optim/calls/scopes.h"
#include "optim/impl.h"
#include "optim/store/flat.h"

namespace firn::optim {

StepReport run_stage(
    Optimizer& optimizer, std::int64_t samples, std::int64_t micro_batch,
    const std::function<void(const StageCycle& cycle, std::int64_t i)>& micro_step) {
  auto& impl = OptimizerAccess::impl(optimizer);
  impl.require_no_cycle();
  const BatchScope batch(impl, samples);
  const Share share = impl.extension->share_of(samples);
  if (share.size() == 0) return impl.run_cycle(1, [&](std::int64_t) { impl.no_samples(); });
  const StageCycle cycle{share.first, share.last, micro_batch};
  return impl.run_cycle(cycle.micro_batches(), [&](std::int64_t i) { micro_step(cycle, i); });
}

/// next_initial_gradient() gets the numbers of the last stage in the same order. So this stage
/// chooses the unit that the incoming gradient already has.
void backward_stage(Optimizer& optimizer, const Tensor& output, const Tensor& gradient, double loss,
                    double weight) {
  auto& impl = OptimizerAccess::impl(optimizer);
  ParamStore& store = impl.store;
  impl.check_ready();
  const bool first = impl.at.micro_steps == 0;
  impl.begin_micro_step();
  const auto pass = [&] {
    const Tensor unit = empty({}, DType::f32, store.device());
    const Tensor sum = zeros({}, DType::f64, store.device());
    write_bytes(sum, &loss, sizeof(loss));
    using Arenas = std::span<const kernels::OptimizerArena>;
    kernels::optim_begin(kernels::pending_gradient(store.memory(), impl.policy, unit.mutable_view(),
                                                   sum.view(), ConstView{}, weight),
                         first ? Arenas() : store.arenas(), store.stream());
    const autograd::CycleScope cycle(impl);
    autograd::backward_from(output, gradient, nullptr, false);
  };
  impl.run_guarded(pass, nullptr);
  store.ledger().note();
}

}  // namespace firn::optim
