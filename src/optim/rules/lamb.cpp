// LAMB: checks the options, and gives each group its rule (kernels/math/optim/adam_rules.h).
#include "firn/optim/rules/lamb.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<LAMBOptions> {
  static constexpr const char* kName = "LAMB";
  static void take(GroupOptions& g, LAMBOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    g.take(g.group().eps, o.eps);
  }
  static kernels::UpdateRule rule(const LAMBOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    return math::Lamb{o.beta1, o.beta2, o.eps, o.weight_decay};
  }
};

template class OptimizerOf<LAMBOptions>;

}  // namespace firn::optim
