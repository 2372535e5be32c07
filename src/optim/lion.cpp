// Lion: its options checked, and the rule of each group (kernels/math/optim.h).
#include "firn/optim/lion.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::vector<GroupSetup> setup(std::vector<ParamGroup> groups, const LionOptions& o) {
  require_option("Lion", "beta1", o.beta1, 0, 1);
  require_option("Lion", "beta2", o.beta2, 0, 1);
  return setup_groups("Lion", std::move(groups), o.weight_decay,
                      [&](double weight_decay) -> kernels::UpdateRule {
                        return math::Lion{o.beta1, o.beta2, weight_decay};
                      });
}

}  // namespace

Lion::Lion(std::vector<Tensor> parameters, const LionOptions& options, const StepOptions& step)
    : Lion(one_group(std::move(parameters)), options, step) {}
Lion::Lion(std::vector<ParamGroup> groups, const LionOptions& options, const StepOptions& step)
    : Optimizer(
          std::make_unique<Impl>("Lion", setup(std::move(groups), options), options.lr, step)) {}

}  // namespace firn::optim
