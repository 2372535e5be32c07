// Rprop: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/rprop.h"

#include <cmath>

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<RpropOptions> {
  static constexpr const char* kName = "Rprop";
  static void take(GroupOptions&, RpropOptions&) {}
  static kernels::UpdateRule rule(const RpropOptions& o) {
    FIRN_CHECK(o.eta_minus > 0 && o.eta_minus < 1 && o.eta_plus > 1 && o.eta_plus < HUGE_VAL, kName,
               "0.5 and 1.2 are usual",
               "eta_minus and eta_plus are {} and {}, not in (0, 1) and above 1", o.eta_minus,
               o.eta_plus);
    FIRN_CHECK(o.step_min >= 0 && o.step_min <= o.step_max && o.step_max < HUGE_VAL, kName,
               "1e-6 and 50 are usual", "step_min and step_max are {} and {}", o.step_min,
               o.step_max);
    return math::Rprop{o.eta_minus, o.eta_plus, o.step_min, o.step_max};
  }
};

template class OptimizerOf<RpropOptions>;

}  // namespace firn::optim
