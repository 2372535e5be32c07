// Adam and AdamW: its options checked, and the rule of each group (kernels/math/optim.h).
#include "firn/optim/rules/adam.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<AdamOptions> {
  static constexpr const char* kName = "Adam";
  static void take(GroupOptions& g, AdamOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    g.take(g.group().eps, o.eps);
    take_state(g, o);
  }
  static kernels::UpdateRule rule(const AdamOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    return math::Adam{o.beta1, o.beta2, o.eps, o.weight_decay, false};
  }
};

template <>
struct RuleOf<AdamWOptions> {
  static constexpr const char* kName = "AdamW";
  static void take(GroupOptions& g, AdamWOptions& o) {
    g.take(g.group().beta1, o.beta1);
    g.take(g.group().beta2, o.beta2);
    g.take(g.group().eps, o.eps);
    take_state(g, o);
  }
  static kernels::UpdateRule rule(const AdamWOptions& o) {
    require_option(kName, "beta1", o.beta1, 0, 1, "0.9 is usual");
    require_option(kName, "beta2", o.beta2, 0, 1, "0.999 is usual");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    return math::Adam{o.beta1, o.beta2, o.eps, o.weight_decay, true};
  }
};

template class OptimizerOf<AdamOptions>;
template class OptimizerOf<AdamWOptions>;

}  // namespace firn::optim
