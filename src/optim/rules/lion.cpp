// Lion: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/lion.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<LionOptions> {
  static constexpr const char* kName = "Lion";
  static void take(GroupOptions& g, LionOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    take_state(g, o);
  }
  static kernels::UpdateRule rule(const LionOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    return math::Lion{o.beta1, o.beta2, o.weight_decay};
  }
};

template class OptimizerOf<LionOptions>;

}  // namespace firn::optim
