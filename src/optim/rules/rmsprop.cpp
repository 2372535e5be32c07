// RMSprop: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/rmsprop.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<RMSpropOptions> {
  static constexpr const char* kName = "RMSprop";
  static void take(GroupOptions& g, RMSpropOptions& o) {
    g.take(g.group().alpha, o.alpha);
    g.take(g.group().eps, o.eps);
    g.take(g.group().momentum, o.momentum);
    g.take(g.group().centered, o.centered);
  }
  static kernels::UpdateRule rule(const RMSpropOptions& o) {
    require_option(kName, "alpha", o.alpha, 0, 1, "0.99 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    require_option(kName, "momentum", o.momentum, 0, 1, "0.9 is usual, 0 is off");
    const bool with_momentum = o.momentum > 0;
    if (o.centered && with_momentum)
      return math::RmsProp<true, true>{o.alpha, o.eps, o.momentum, o.weight_decay};
    if (o.centered) return math::RmsProp<true, false>{o.alpha, o.eps, 0, o.weight_decay};
    if (with_momentum)
      return math::RmsProp<false, true>{o.alpha, o.eps, o.momentum, o.weight_decay};
    return math::RmsProp<false, false>{o.alpha, o.eps, 0, o.weight_decay};
  }
};

template class OptimizerOf<RMSpropOptions>;

}  // namespace firn::optim
