// Adagrad: its options checked, and the rule of each group (kernels/math/optim.h).
#include "firn/optim/adagrad.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::vector<GroupSetup> setup(std::vector<ParamGroup> groups, const AdagradOptions& o) {
  require_option("Adagrad", "lr_decay", o.lr_decay, 0);
  require_positive("Adagrad", "eps", o.eps);
  require_option("Adagrad", "initial_accumulator", o.initial_accumulator, 0);
  return setup_groups(
      "Adagrad", std::move(groups), o.weight_decay,
      [&](double weight_decay) -> kernels::UpdateRule {
        return math::Adagrad{o.lr_decay, o.eps, o.initial_accumulator, weight_decay};
      });
}

}  // namespace

Adagrad::Adagrad(std::vector<Tensor> parameters, const AdagradOptions& options,
                 const StepOptions& step)
    : Adagrad(one_group(std::move(parameters)), options, step) {}
Adagrad::Adagrad(std::vector<ParamGroup> groups, const AdagradOptions& options,
                 const StepOptions& step)
    : Optimizer(
          std::make_unique<Impl>("Adagrad", setup(std::move(groups), options), options.lr, step)) {}

}  // namespace firn::optim
