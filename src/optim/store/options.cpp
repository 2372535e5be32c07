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

double least_number(DType type) {
  return type == DType::f64 ? std::numeric_limits<double>::min()
                            : static_cast<double>(std::numeric_limits<float>::min());
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

/// Calls fn(name, value, not_one) for each number of a rule; not_one: it is to differ from 1.
template <class Rule, class Fn>
void each_option(const Rule& r, const Fn& fn) {
  if constexpr (requires { r.momentum; }) fn("momentum", r.momentum, true);
  if constexpr (requires { r.dampening; }) fn("dampening", r.dampening, false);
  if constexpr (requires { r.nesterov; })
    if (r.nesterov) fn("nesterov", 1, false);
  if constexpr (requires { r.alpha; }) fn("alpha", r.alpha, true);
  if constexpr (requires { r.beta1; }) fn("beta1", r.beta1, true);
  if constexpr (requires { r.beta2; }) fn("beta2", r.beta2, true);
  if constexpr (requires { r.eps; }) fn("eps", r.eps, false);
  if constexpr (std::is_same_v<Rule, math::AmsGrad>) fn("amsgrad", 1, false);
  if constexpr (requires { r.rho; }) fn("rho", r.rho, true);
  if constexpr (requires { r.momentum_decay; }) fn("momentum_decay", r.momentum_decay, false);
  if constexpr (requires { r.decoupled_weight_decay; })
    if (r.decoupled_weight_decay) fn("decoupled_weight_decay", 1, false);
  if constexpr (requires { r.eta_minus; }) {
    fn("eta_minus", r.eta_minus, true);
    fn("eta_plus", r.eta_plus, true);
    fn("step_min", r.step_min, false);
    fn("step_max", r.step_max, false);
  }
  if constexpr (requires { r.lr_decay; }) fn("lr_decay", r.lr_decay, false);
  if constexpr (requires { r.weight_decay; }) fn("weight_decay", r.weight_decay, false);
}

/// Describes each number by the shortest decimal that is read back as the same double.
template <class Rule>
std::string options_of(const Rule& r) {
  std::string out;
  each_option(r, [&](const char* name, double value, bool) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, value);
  });
  return out;
}

}  // namespace

void require_options(const std::string& op, const GroupSetup& group, DType type) {
  const auto require = [&](const char* name, double value, bool not_one) {
    require_seen(op, type, name, value, not_one);
  };
  require("a group's lr_scale", group.lr_scale, false);
  require("the lr_scale of the other rule", group.other_lr_scale, false);
  for (const kernels::UpdateRule* rule : {&group.rule, &group.other})
    std::visit(
        [&](const auto& r) {
          each_option(r, require);
          if constexpr (requires { r.step_max; })
            FIRN_CHECK(type == DType::f64 || r.step_max <= math::kLargestRate, op, "50 is usual",
                       "step_max is {}, more than {}", r.step_max, math::kLargestRate);
          if constexpr (std::is_same_v<std::decay_t<decltype(r)>, math::Adagrad>)
            require("initial_accumulator", r.initial, false);
        },
        *rule);
  if (!group.whole) return;
  for (const RuleNumber& n : group.whole->numbers()) require(n.name, n.value, n.not_one);
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
