// Adagrad: checks the options, and gives each group its rule (kernels/math/optim/rules.h).
#include "firn/optim/rules/adagrad.h"

#include "optim/rules/rule.h"

namespace firn::optim {

template <>
struct RuleOf<AdagradOptions> {
  static constexpr const char* kName = "Adagrad";
  static void take(GroupOptions& g, AdagradOptions& o) {
    g.take(g.group().lr_decay, o.lr_decay);
    g.take(g.group().eps, o.eps);
    g.take(g.group().initial_accumulator, o.initial_accumulator);
  }
  static kernels::UpdateRule rule(const AdagradOptions& o) {
    require_option(kName, "lr_decay", o.lr_decay, 0, "0 is off");
    require_positive(kName, "eps", o.eps, "1e-8 is usual");
    require_option(kName, "initial_accumulator", o.initial_accumulator, 0, "0 is usual");
    return math::Adagrad{o.lr_decay, o.eps, o.initial_accumulator, o.weight_decay};
  }
};

template class OptimizerOf<AdagradOptions>;

}  // namespace firn::optim
