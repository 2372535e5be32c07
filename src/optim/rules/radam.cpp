// RAdam: checks the options, and gives each group its rule (kernels/math/optim/adam_rules.h).
#include "firn/optim/rules/radam.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<RAdamOptions> {
  static constexpr const char* kName = "RAdam";
  static void take(GroupOptions& g, RAdamOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    g.take(g.group().eps, o.eps);
  }
  static kernels::UpdateRule rule(const RAdamOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    return math::RAdam{o.beta1, o.beta2, o.eps, o.weight_decay, o.decoupled_weight_decay};
  }
};

template class OptimizerOf<RAdamOptions>;

}  // namespace firn::optim
