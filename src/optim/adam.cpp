#include "firn/optim/adam.h"

#include "optim/optimizer_impl.h"

namespace firn::optim {
namespace {

template <class Options>
std::vector<GroupSetup> setup(const char* op, std::vector<ParamGroup> groups, const Options& o,
                              bool decoupled) {
  require_option(op, "beta1", o.beta1, 0, 1);
  require_option(op, "beta2", o.beta2, 0, 1);
  require_positive(op, "eps", o.eps);
  return setup_groups(op, std::move(groups), o.weight_decay,
                      [&](double weight_decay) -> kernels::UpdateRule {
                        return math::Adam{o.beta1, o.beta2, o.eps, weight_decay, decoupled};
                      });
}

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options, const StepOptions& step)
    : Adam(one_group(std::move(parameters)), options, step) {}
Adam::Adam(std::vector<ParamGroup> groups, const AdamOptions& options, const StepOptions& step)
    : Optimizer(std::make_unique<Impl>("Adam", setup("Adam", std::move(groups), options, false),
                                       options.lr, step)) {}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options, const StepOptions& step)
    : AdamW(one_group(std::move(parameters)), options, step) {}
AdamW::AdamW(std::vector<ParamGroup> groups, const AdamWOptions& options, const StepOptions& step)
    : Optimizer(std::make_unique<Impl>("AdamW", setup("AdamW", std::move(groups), options, true),
                                       options.lr, step)) {}

}  // namespace firn::optim
