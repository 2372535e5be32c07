// The options of an optimizer's rules: checks in the type that computes with them, and a
// description that a saved run compares.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "optim/store/param_store.h"

namespace firn::optim {

bool any_in(DType type, const ParamList& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [type](const NamedTensor& p) {
    return p.tensor.defined() && (p.tensor.dtype() == DType::f64) == (type == DType::f64);
  });
}

void require_seen(const std::string& op, DType type, const char* name, double value, bool not_one) {
  const bool wide = type == DType::f64;
  const double most = wide ? std::numeric_limits<double>::max()
                           : static_cast<double>(std::numeric_limits<float>::max());
  const double size = std::abs(value);
  const bool becomes_one = not_one && !wide && static_cast<float>(value) == 1;
  FIRN_CHECK(size == 0 || (size >= least_number(type) && size <= most && !becomes_one), op,
             wide ? "give 0 or a larger number"
                  : "give a number that f32 has; f64 parameters have their options in f64",
             "{} is {}, which {} arithmetic takes for {}", name, value, wide ? "f64" : "f32",
             becomes_one                 ? "1"
             : size < least_number(type) ? "0"
                                         : "infinity");
}

RateRange rates_of(std::span<const kernels::OptimizerArena> arenas,
                   const math::StepPolicy& policy) {
  RateRange out{.most = policy.largest_rate};
  for (const kernels::OptimizerArena& a : arenas)
    if (a.lr_scale > 0) out.least = std::max(out.least, least_number(a.weight.dtype) / a.lr_scale);
  return out;
}

namespace {

/// Calls fn(RuleNumber) for each number of a rule.
template <class Rule, class Fn>
void each_option(const Rule& r, const Fn& fn) {
  if constexpr (requires { r.momentum; }) fn(RuleNumber{"momentum", r.momentum, true});
  if constexpr (requires { r.dampening; }) fn(RuleNumber{"dampening", r.dampening});
  if constexpr (requires { r.nesterov; })
    if (r.nesterov) fn(RuleNumber{"nesterov", 1});
  if constexpr (requires { r.alpha; }) fn(RuleNumber{"alpha", r.alpha, true});
  if constexpr (requires { r.beta1; }) fn(RuleNumber{"beta1", r.beta1, true});
  if constexpr (requires { r.beta2; }) fn(RuleNumber{"beta2", r.beta2, true});
  if constexpr (requires { r.eps; }) fn(RuleNumber{"eps", r.eps});
  if constexpr (std::is_same_v<Rule, math::AmsGrad>) fn(RuleNumber{"amsgrad", 1});
  if constexpr (requires { r.rho; }) fn(RuleNumber{"rho", r.rho, true});
  if constexpr (requires { r.momentum_decay; }) fn(RuleNumber{"momentum_decay", r.momentum_decay});
  if constexpr (requires { r.decoupled_weight_decay; })
    if (r.decoupled_weight_decay) fn(RuleNumber{"decoupled_weight_decay", 1});
  if constexpr (requires { r.eta_minus; }) {
    fn(RuleNumber{"eta_minus", r.eta_minus, true});
    fn(RuleNumber{"eta_plus", r.eta_plus, true});
    fn(RuleNumber{"step_min", r.step_min});
    fn(RuleNumber{"step_max", r.step_max});
  }
  if constexpr (requires { r.lr_decay; }) fn(RuleNumber{"lr_decay", r.lr_decay});
  if constexpr (requires { r.weight_decay; }) fn(RuleNumber{"weight_decay", r.weight_decay});
}

/// Describes each number by the shortest decimal that is read back as the same double.
template <class Rule>
std::string options_of(const Rule& r) {
  std::string out;
  each_option(r, [&](const RuleNumber& n) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n.name, n.value);
  });
  return out;
}

}  // namespace

void require_options(const std::string& op, const GroupSetup& group, DType type) {
  const auto require = [&](const RuleNumber& n) {
    require_seen(op, type, n.name, n.value, n.not_one);
  };
  require({"a group's lr_scale", group.lr_scale});
  require({"the lr_scale of the other rule", group.other_lr_scale});
  for (const kernels::UpdateRule* rule : {&group.rule, &group.other})
    std::visit(
        [&](const auto& r) {
          each_option(r, require);
          if constexpr (requires { r.step_max; })
            FIRN_CHECK(type == DType::f64 || r.step_max <= math::kLargestRate, op, "50 is usual",
                       "step_max is {}, more than {}", r.step_max, math::kLargestRate);
          if constexpr (std::is_same_v<std::decay_t<decltype(r)>, math::Adagrad>)
            require({"initial_accumulator", r.initial});
        },
        *rule);
  if (!group.whole) return;
  for (const RuleNumber& n : group.whole->numbers()) require(n);
}

std::string ParamStore::options_in_words() const {
  std::string out, last;
  for (const Arena& a : arenas_) {
    std::string text = a.whole ? a.whole->options()
                               : std::visit([](const auto& r) { return options_of(r); }, a.rule);
    if (a.lr_scale != 1) text += fmt::format("{}lr_scale {}", text.empty() ? "" : ", ", a.lr_scale);
    if (text == last) continue;
    out += (out.empty() ? "" : "; ") + text;
    last = std::move(text);
  }
  return out;
}

}  // namespace firn::optim
