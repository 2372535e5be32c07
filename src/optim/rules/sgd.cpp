// SGD: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/sgd.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<SGDOptions> {
  static constexpr const char* kName = "SGD";
  static void take(GroupOptions& g, SGDOptions& o) {
    g.take(g.group().momentum, o.momentum);
    g.take(g.group().dampening, o.dampening);
    g.take(g.group().nesterov, o.nesterov);
  }
  static kernels::UpdateRule rule(const SGDOptions& o) {
    require_option(kName, "momentum", o.momentum, 0, 1, "0.9 is usual, 0 is off");
    FIRN_CHECK(o.dampening >= 0 && o.dampening <= 1, kName, "0 is the default",
               "dampening is {}, not in [0, 1]", o.dampening);
    FIRN_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), kName,
               "set momentum, and leave dampening out",
               "nesterov needs momentum > 0 and dampening 0; they are {} and {}", o.momentum,
               o.dampening);
    if (o.momentum == 0) return math::Sgd{o.weight_decay};
    return math::SgdMomentum{o.momentum, o.dampening, o.weight_decay, o.nesterov};
  }
};

template class OptimizerOf<SGDOptions>;

}  // namespace firn::optim
