// NAdam: checks the options, and gives each group its rule (kernels/math/optim/adam_rules.h).
#include "firn/optim/rules/nadam.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<NAdamOptions> {
  static constexpr const char* kName = "NAdam";
  static void take(GroupOptions& g, NAdamOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    g.take(g.group().eps, o.eps);
    g.take(g.group().momentum_decay, o.momentum_decay);
  }
  static kernels::UpdateRule rule(const NAdamOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    require_option(kName, "momentum_decay", o.momentum_decay, 0, "0.004 is usual");
    return math::NAdam{o.beta1,        o.beta2,          o.eps,
                       o.weight_decay, o.momentum_decay, o.decoupled_weight_decay};
  }
};

template class OptimizerOf<NAdamOptions>;

}  // namespace firn::optim
