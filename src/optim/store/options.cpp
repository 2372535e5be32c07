// The options of an optimizer's rules in words: what a saved run compares.
#include <type_traits>

#include "base/check.h"
#include "optim/store/param_store.h"

namespace firn::optim {
namespace {

/// Each as the shortest decimal number that is read back as the same double.
template <class Rule>
std::string options_of(const Rule& r) {
  std::string out;
  const auto add = [&](const char* name, double value) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, value);
  };
  if constexpr (requires { r.momentum; }) add("momentum", r.momentum);
  if constexpr (requires { r.dampening; }) add("dampening", r.dampening);
  if constexpr (requires { r.nesterov; })
    if (r.nesterov) add("nesterov", 1);
  if constexpr (requires { r.alpha; }) add("alpha", r.alpha);
  if constexpr (requires { r.beta1; }) add("beta1", r.beta1);
  if constexpr (requires { r.beta2; }) add("beta2", r.beta2);
  if constexpr (requires { r.eps; }) add("eps", r.eps);
  if constexpr (std::is_same_v<Rule, math::AmsGrad>) add("amsgrad", 1);
  if constexpr (requires { r.rho; }) add("rho", r.rho);
  if constexpr (requires { r.momentum_decay; }) add("momentum_decay", r.momentum_decay);
  if constexpr (requires { r.decoupled_weight_decay; })
    if (r.decoupled_weight_decay) add("decoupled_weight_decay", 1);
  if constexpr (requires { r.eta_minus; }) {
    add("eta_minus", r.eta_minus);
    add("eta_plus", r.eta_plus);
    add("step_min", r.step_min);
    add("step_max", r.step_max);
  }
  if constexpr (requires { r.lr_decay; }) add("lr_decay", r.lr_decay);
  if constexpr (requires { r.weight_decay; }) add("weight_decay", r.weight_decay);
  return out;
}

}  // namespace

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
