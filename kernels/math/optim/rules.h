// Update rules of the optimizers: each one formula, written once. A rule holds its hyper-parameters
// and has
//   kStates, state_name(i)   number of values per parameter element, and their names
//   prepare<S>(...)          coefficients of one step, rounded once to S
//   apply<V>(k, w, g, state) one element: w and state in place, g the averaged gradient
// and, if it needs them,
//   initial_state(i)         first value of a state, if not 0
//   state_is_signed(i)       for rules whose states may be kept in 8 bits (dynamic_code.h)
//   direction, trust_ratio   see Lamb
//   value_limit              see Replace
// S and V are the compute type (float; double for f64 parameters). Nothing in apply() branches on
// data, so that loops over it vectorise. A new rule: a struct here, or in adam_rules.h, and its
// name in UpdateRule (kernels/optim.h).
//
// The formulas are those of torch.optim (SGD, RMSprop, Adagrad, Adadelta, Rprop) and of the paper
// (Lion).
#pragma once

#include "kernels/math/optim/adam_rules.h"
#include "kernels/math/optim/step_input.h"

namespace firn::math {

/// w -= lr * (g + weight_decay * w)
struct Sgd {
  double weight_decay = 0;

  static constexpr int kStates = 0;
  static constexpr const char* state_name(int) { return ""; }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay;
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    return {S(in.gradient_factor), S(in.learning_rate), S(weight_decay)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V*) {
    w -= k.lr * (g + k.weight_decay * w);
  }
};

/// d = g + weight_decay * w;  b = momentum * b + (1 - dampening) * d  (b = d at the first update);
/// w -= lr * (nesterov ? d + momentum * b : b)
struct SgdMomentum {
  double momentum = 0.9;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;

  static constexpr int kStates = 1;
  static constexpr const char* state_name(int) { return "momentum"; }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay, momentum, intake;
    S of_buffer, of_gradient;  ///< the step is of_buffer * b + of_gradient * d
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    return {S(in.gradient_factor),
            S(in.learning_rate),
            S(weight_decay),
            S(momentum),
            in.count == 1 ? S(1) : S(1 - dampening),
            nesterov ? S(momentum) : S(1),
            nesterov ? S(1) : S(0)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.weight_decay * w;
    const V b = k.momentum * state[0] + k.intake * d;
    w -= k.lr * (k.of_buffer * b + k.of_gradient * d);
    state[0] = b;
  }
};

/// RMSprop (Tieleman & Hinton, 2012; centered: Graves, 2013), as in torch.optim.
///   d = g + weight_decay * w;  v = alpha * v + (1 - alpha) * d^2
///   centered: a = alpha * a + (1 - alpha) * d, and v - a^2 takes the place of v in the next line
///   u = d / (sqrt(v) + eps);   momentum: b = momentum * b + u takes the place of u
///   w -= lr * u
/// Rounding may take the variance v - a^2 below 0; it then counts as 0.
template <bool kCentered, bool kMomentum>
struct RmsProp {
  double alpha = 0.99;
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;

  static constexpr int kStates = 1 + kCentered + kMomentum;
  static constexpr const char* state_name(int i) {
    if (i == 0) return "square_average";
    return kCentered && i == 1 ? "gradient_average" : "momentum";
  }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay, alpha, intake, eps, momentum;
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    return {S(in.gradient_factor),
            S(in.learning_rate),
            S(weight_decay),
            S(alpha),
            S(1 - alpha),
            S(eps),
            S(momentum)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.weight_decay * w;
    state[0] = k.alpha * state[0] + k.intake * d * d;
    V v = state[0];
    if constexpr (kCentered) {
      state[1] = k.alpha * state[1] + k.intake * d;
      v = max(v - state[1] * state[1], V(0));
    }
    V u = d / (sqrt(v) + k.eps);
    if constexpr (kMomentum) {
      u = k.momentum * state[kStates - 1] + u;
      state[kStates - 1] = u;
    }
    w -= k.lr * u;
  }
};

/// Adagrad (Duchi, Hazan & Singer, 2011), as in torch.optim.
///   d = g + weight_decay * w;  s += d^2  (s = initial before the first);
///   w -= lr / (1 + (t - 1) * lr_decay) * d / (sqrt(s) + eps)
struct Adagrad {
  double lr_decay = 0;
  double eps = 1e-10;
  double initial = 0;
  double weight_decay = 0;

  static constexpr int kStates = 1;
  static constexpr const char* state_name(int) { return "square_sum"; }
  constexpr double initial_state(int) const { return initial; }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay, eps;
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const double before = static_cast<double>(in.count - 1);
    return {S(in.gradient_factor), S(in.learning_rate / (1 + before * lr_decay)), S(weight_decay),
            S(eps)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.weight_decay * w;
    const V s = state[0] + d * d;
    w -= k.lr * d / (sqrt(s) + k.eps);
    state[0] = s;
  }
};

/// Adadelta (Zeiler, 2012, algorithm 1), as in torch.optim.
///   d = g + weight_decay * w;  v = rho * v + (1 - rho) * d^2
///   u = sqrt(a + eps) / sqrt(v + eps) * d;  a = rho * a + (1 - rho) * u^2;  w -= lr * u
struct Adadelta {
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) {
    return i == 0 ? "square_average" : "update_average";
  }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay, rho, intake, eps;
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    return {
        S(in.gradient_factor), S(in.learning_rate), S(weight_decay), S(rho), S(1 - rho), S(eps)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.weight_decay * w;
    const V v = k.rho * state[0] + k.intake * d * d;
    const V u = sqrt(state[1] + k.eps) / sqrt(v + k.eps) * d;
    w -= k.lr * u;
    state[0] = v;
    state[1] = k.rho * state[1] + k.intake * u * u;
  }
};

/// Rprop (Riedmiller & Braun, 1993), as in torch.optim: a weight has a step size of its own, and
/// moves by it against the sign of its gradient.
///   s = lr before the first update;  s *= eta_plus if g and the last g have one sign, eta_minus if
///   their signs differ;  s within [step_min, step_max];  g = 0 if the signs differ
///   w -= sign(g) * s;  last g = g
struct Rprop {
  double eta_minus = 0.5;
  double eta_plus = 1.2;
  double step_min = 1e-6;
  double step_max = 50;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) { return i == 0 ? "last_gradient" : "step_size"; }

  template <class S>
  struct Coefficients {
    S gradient_factor, eta_minus, eta_plus, step_min, step_max;
    S of_state, initial;  ///< the step size is of_state * s + initial
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const bool first = in.count == 1;
    return {S(in.gradient_factor),
            S(eta_minus),
            S(eta_plus),
            S(step_min),
            S(step_max),
            first ? S(0) : S(1),
            first ? S(in.learning_rate) : S(0)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V both = sign_of(g) * sign_of(state[0]);
    const V eta = where(both > V(0), V(k.eta_plus), where(both < V(0), V(k.eta_minus), V(1)));
    const V step =
        min(max((k.of_state * state[1] + k.initial) * eta, V(k.step_min)), V(k.step_max));
    const V used = where(both < V(0), V(0), g);
    w -= sign_of(used) * step;
    state[0] = used;
    state[1] = step;
  }
};

/// Lion (Chen et al., 2023, algorithm 2). sign(0) is 0.
///   w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w)
///   m = beta2 * m + (1 - beta2) * g
struct Lion {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;

  static constexpr int kStates = 1;
  static constexpr const char* state_name(int) { return "momentum"; }
  FIRN_HD static constexpr bool state_is_signed(int) { return true; }

  template <class S>
  struct Coefficients {
    S gradient_factor, beta1, intake1, beta2, intake2, lr;
    S shrink;  ///< 1 - lr * weight_decay
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    return {S(in.gradient_factor),
            S(beta1),
            S(1 - beta1),
            S(beta2),
            S(1 - beta2),
            S(in.learning_rate),
            S(1 - in.learning_rate * weight_decay)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V c = k.beta1 * state[0] + k.intake1 * g;
    w = k.shrink * w - k.lr * sign_of(c);
    state[0] = k.beta2 * state[0] + k.intake2 * g;
  }
};

/// Last part of a rule that tensor operations compute for a whole parameter: its new weight stands
/// in the gradient's place.
///   w = g
struct Replace {
  static constexpr int kStates = 0;
  static constexpr const char* state_name(int) { return ""; }

  template <class S>
  struct Coefficients {
    S gradient_factor;
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput&) const {
    return {S(1)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>&, V& w, V g, V*) {
    w = g;
  }
};

/// Limit of the magnitude of `g`; none for an update that takes weights there.
template <class Rule>
FIRN_HD constexpr double value_limit(const Rule&, double limit) {
  return limit;
}
FIRN_HD constexpr double value_limit(const Replace&, double) {
  return static_cast<double>(HUGE_VALF);
}

/// True if the rule has a trust ratio.
template <class Rule>
constexpr bool has_trust_ratio(const Rule&) {
  return false;
}
constexpr bool has_trust_ratio(const Lamb&) { return true; }

}  // namespace firn::math
