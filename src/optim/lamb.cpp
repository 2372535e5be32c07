// LAMB: its options checked, and the rule of each group (kernels/math/optim.h).
#include "firn/optim/lamb.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::vector<GroupSetup> setup(std::vector<ParamGroup> groups, const LAMBOptions& o) {
  require_option("LAMB", "beta1", o.beta1, 0, 1);
  require_option("LAMB", "beta2", o.beta2, 0, 1);
  require_positive("LAMB", "eps", o.eps);
  return setup_groups("LAMB", std::move(groups), o.weight_decay,
                      [&](double weight_decay) -> kernels::UpdateRule {
                        return math::Lamb{o.beta1, o.beta2, o.eps, weight_decay};
                      });
}

}  // namespace

LAMB::LAMB(std::vector<Tensor> parameters, const LAMBOptions& options, const StepOptions& step)
    : LAMB(one_group(std::move(parameters)), options, step) {}
LAMB::LAMB(std::vector<ParamGroup> groups, const LAMBOptions& options, const StepOptions& step)
    : Optimizer(
          std::make_unique<Impl>("LAMB", setup(std::move(groups), options), options.lr, step)) {}

}  // namespace firn::optim
