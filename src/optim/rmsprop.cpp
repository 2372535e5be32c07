// RMSprop: its options checked, and the rule of each group (kernels/math/optim.h).
#include "firn/optim/rmsprop.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::vector<GroupSetup> setup(std::vector<ParamGroup> groups, const RMSpropOptions& o) {
  require_option("RMSprop", "alpha", o.alpha, 0, 1);
  require_positive("RMSprop", "eps", o.eps);
  require_option("RMSprop", "momentum", o.momentum, 0, 1);
  return setup_groups(
      "RMSprop", std::move(groups), o.weight_decay,
      [&](double weight_decay) -> kernels::UpdateRule {
        const bool with_momentum = o.momentum > 0;
        if (o.centered && with_momentum)
          return math::RmsProp<true, true>{o.alpha, o.eps, o.momentum, weight_decay};
        if (o.centered) return math::RmsProp<true, false>{o.alpha, o.eps, 0, weight_decay};
        if (with_momentum)
          return math::RmsProp<false, true>{o.alpha, o.eps, o.momentum, weight_decay};
        return math::RmsProp<false, false>{o.alpha, o.eps, 0, weight_decay};
      });
}

}  // namespace

RMSprop::RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& options,
                 const StepOptions& step)
    : RMSprop(one_group(std::move(parameters)), options, step) {}
RMSprop::RMSprop(std::vector<ParamGroup> groups, const RMSpropOptions& options,
                 const StepOptions& step)
    : Optimizer(
          std::make_unique<Impl>("RMSprop", setup(std::move(groups), options), options.lr, step)) {}

}  // namespace firn::optim
