// Adam and AdamW: the options' checks, and the groups' rules (kernels/math/optim/adam_rules.h).
#include "firn/optim/rules/adam.h"

#include "optim/rules/rule.h"

namespace firn::optim {
namespace {

template <class Options>
void take_options(GroupOptions& g, Options& o) {
  g.take(g.group().beta1, o.beta1);
  g.take(g.group().beta2, o.beta2);
  g.take(g.group().eps, o.eps);
  g.take(g.group().amsgrad, o.amsgrad);
  take_state(g, o);
}

template <class Options>
kernels::UpdateRule checked_rule(const char* op, const Options& o, bool decoupled) {
  require_option(op, "beta1", o.beta1, 0, 1, "0.9 is usual");
  require_option(op, "beta2", o.beta2, 0, 1, "0.999 is usual");
  require_positive(op, "eps", o.eps, "1e-8 is usual");
  FIRN_CHECK(!o.amsgrad || o.state == StatePrecision::full, op, "leave one of them out",
             "amsgrad has no form with states in 8 bits");
  const math::Adam adam{o.beta1, o.beta2, o.eps, o.weight_decay, decoupled};
  if (o.amsgrad) return math::AmsGrad{adam};
  return adam;
}

}  // namespace

template <>
struct RuleOf<AdamOptions> {
  static constexpr const char* kName = "Adam";
  static void take(GroupOptions& g, AdamOptions& o) { take_options(g, o); }
  static kernels::UpdateRule rule(const AdamOptions& o) { return checked_rule(kName, o, false); }
};

template <>
struct RuleOf<AdamWOptions> {
  static constexpr const char* kName = "AdamW";
  static void take(GroupOptions& g, AdamWOptions& o) { take_options(g, o); }
  static kernels::UpdateRule rule(const AdamWOptions& o) { return checked_rule(kName, o, true); }
};

template class OptimizerOf<AdamOptions>;
template class OptimizerOf<AdamWOptions>;

}  // namespace firn::optim
