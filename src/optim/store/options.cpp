// The options of an optimizer's rules: checks in the type that computes with them, and a
// description that a saved run compares.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "optim/store/param_store.h"

namespace firn::optim {

bool any_in_f32(const ParamList& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const NamedTensor& p) {
    return p.tensor.defined() && p.tensor.dtype() != DType::f64;
  });
}

void require_f32(const std::string& op, const char* name, double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  const double size = std::abs(value);
  FIRN_CHECK(size == 0 || (size >= kLeast && size <= kMost), op,
             "give a number that f32 has; f64 parameters have their options in f64",
             "{} is {}, which f32 arithmetic takes for {}", name, value,
             size < kLeast ? "0" : "infinity");
}

namespace {

/// Calls fn(name, value) for each number of a rule.
template <class Rule, class Fn>
void each_option(const Rule& r, const Fn& fn) {
  if constexpr (requires { r.momentum; }) fn("momentum", r.momentum);
  if constexpr (requires { r.dampening; }) fn("dampening", r.dampening);
  if constexpr (requires { r.nesterov; })
    if (r.nesterov) fn("nesterov", 1);
  if constexpr (requires { r.alpha; }) fn("alpha", r.alpha);
  if constexpr (requires { r.beta1; }) fn("beta1", r.beta1);
  if constexpr (requires { r.beta2; }) fn("beta2", r.beta2);
  if constexpr (requires { r.eps; }) fn("eps", r.eps);
  if constexpr (std::is_same_v<Rule, math::AmsGrad>) fn("amsgrad", 1);
  if constexpr (requires { r.rho; }) fn("rho", r.rho);
  if constexpr (requires { r.momentum_decay; }) fn("momentum_decay", r.momentum_decay);
  if constexpr (requires { r.decoupled_weight_decay; })
    if (r.decoupled_weight_decay) fn("decoupled_weight_decay", 1);
  if constexpr (requires { r.eta_minus; }) {
    fn("eta_minus", r.eta_minus);
    fn("eta_plus", r.eta_plus);
    fn("step_min", r.step_min);
    fn("step_max", r.step_max);
  }
  if constexpr (requires { r.lr_decay; }) fn("lr_decay", r.lr_decay);
  if constexpr (requires { r.weight_decay; }) fn("weight_decay", r.weight_decay);
}

/// Describes each number by the shortest decimal that is read back as the same double.
template <class Rule>
std::string options_of(const Rule& r) {
  std::string out;
  each_option(r, [&](const char* name, double value) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, value);
  });
  return out;
}

}  // namespace

void require_options(const std::string& op, const GroupSetup& group) {
  if (!any_in_f32(group.parameters)) return;
  require_f32(op, "a group's lr_scale", group.lr_scale);
  require_f32(op, "the lr_scale of the other rule", group.other_lr_scale);
  for (const kernels::UpdateRule* rule : {&group.rule, &group.other})
    std::visit(
        [&](const auto& r) {
          each_option(r, [&](const char* name, double value) { require_f32(op, name, value); });
          if constexpr (requires { r.step_max; })
            FIRN_CHECK(r.step_max <= math::kLargestRate, op, "50 is usual",
                       "step_max is {}, more than {}", r.step_max, math::kLargestRate);
          if constexpr (std::is_same_v<std::decay_t<decltype(r)>, math::Adagrad>)
            require_f32(op, "initial_accumulator", r.initial);
        },
        *rule);
  if (!group.whole) return;
  for (const auto& [name, value] : group.whole->numbers()) require_f32(op, name, value);
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
