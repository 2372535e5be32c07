#include "firn/optim/sgd.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

std::vector<GroupSetup> setup(std::vector<ParamGroup> groups, const SGDOptions& o) {
  require_option("SGD", "momentum", o.momentum, 0, 1);
  FIRN_CHECK(o.dampening >= 0 && o.dampening <= 1, "SGD", "", "dampening is {}, not in [0, 1]",
             o.dampening);
  FIRN_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD",
             "set momentum, and leave dampening out",
             "nesterov needs momentum > 0 and dampening 0; they are {} and {}", o.momentum,
             o.dampening);
  return setup_groups("SGD", std::move(groups), o.weight_decay,
                      [&](double weight_decay) -> kernels::UpdateRule {
                        if (o.momentum == 0) return math::Sgd{weight_decay};
                        return math::SgdMomentum{o.momentum, o.dampening, weight_decay, o.nesterov};
                      });
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options, const StepOptions& step)
    : SGD(one_group(std::move(parameters)), options, step) {}
SGD::SGD(std::vector<ParamGroup> groups, const SGDOptions& options, const StepOptions& step)
    : Optimizer(
          std::make_unique<Impl>("SGD", setup(std::move(groups), options), options.lr, step)) {}

}  // namespace firn::optim
