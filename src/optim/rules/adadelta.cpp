// Adadelta: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/adadelta.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<AdadeltaOptions> {
  static constexpr const char* kName = "Adadelta";
  static void take(GroupOptions& g, AdadeltaOptions& o) {
    g.take(g.group().rho, o.rho);
    g.take(g.group().eps, o.eps);
  }
  static kernels::UpdateRule rule(const AdadeltaOptions& o) {
    require_option(kName, "rho", o.rho, 0, 1, "0.9 is usual");
    require_positive(kName, "eps", o.eps, "1e-6 is usual");
    return math::Adadelta{o.rho, o.eps, o.weight_decay};
  }
};

template class OptimizerOf<AdadeltaOptions>;

}  // namespace firn::optim
