// Update rules of the optimizers: each one formula, written once. A rule holds its hyper-parameters
// and has
//   kStates, state_name(i)   how many values it keeps per parameter element, and their names
//   prepare<S>(...)          what one step needs of the hyper-parameters, rounded once to S
//   apply<V>(k, w, g, state) one element: w and state in place, g the averaged gradient
// and, if it needs them,
//   initial_state(i)         what a state begins with, if not 0
//   state_is_signed(i)       for rules whose states may be kept in 8 bits (dynamic_code.h)
//   direction, trust_ratio   see Lamb
//   value_limit              see Replace
// S and V are the compute type (float; double for f64 parameters). Nothing in apply() branches on
// data, so that loops over it vectorise. A new rule: a struct here, and its name in UpdateRule
// (kernels/optim.h).
//
// The formulas are those of torch.optim (SGD, Adam, AdamW, RMSprop, Adagrad) and of the papers
// (LAMB, Lion).
#pragma once

#include "kernels/math/optim/step_state.h"

namespace firn::math {

/// The moving average `e` of a weight after a step that took it to `w`; intake = 1 - decay.
template <class V>
FIRN_HD V moving_average(V e, V w, V intake) {
  return e + intake * (w - e);
}

/// What changes in every step; the update kernel reads it from device memory.
struct StepInput {
  double learning_rate;    ///< of the parameter's group
  double gradient_factor;  ///< turns the accumulated sum into the clipped mean gradient
  std::int64_t count;      ///< updates of this parameter, this one included: 1 at the first
  double trust_ratio = 1;  ///< of this parameter and step, for rules that have one
  double share = 0;        ///< of this step in a rule's average (AveragePolicy, step_state.h)
};

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

/// Adam (Kingma & Ba, 2015, algorithm 1). weight_decay is added to the gradient (L2), or,
/// decoupled, shrinks the weight by itself: AdamW (Loshchilov & Hutter, 2019, algorithm 2).
///   g += weight_decay * w           or   w -= lr * weight_decay * w
///   m = beta1 * m + (1 - beta1) * g;     v = beta2 * v + (1 - beta2) * g^2
///   w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) {
    return i == 0 ? "first_moment" : "second_moment";
  }
  FIRN_HD static constexpr bool state_is_signed(int i) { return i == 0; }

  template <class S>
  struct Coefficients {
    S gradient_factor, beta1, intake1, beta2, intake2, eps;
    S l2, shrink;       ///< one of the two decays; the other is neutral
    S step_size;        ///< lr / (1 - beta1^t)
    S root_correction;  ///< 1 / sqrt(1 - beta2^t)
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const double t = static_cast<double>(in.count);
    return {S(in.gradient_factor),
            S(beta1),
            S(1 - beta1),
            S(beta2),
            S(1 - beta2),
            S(eps),
            decoupled ? S(0) : S(weight_decay),
            decoupled ? S(1 - in.learning_rate * weight_decay) : S(1),
            S(in.learning_rate / (1 - pow(beta1, t))),
            S(1 / sqrt(1 - pow(beta2, t)))};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.l2 * w;
    const V m = k.beta1 * state[0] + k.intake1 * d;
    const V v = k.beta2 * state[1] + k.intake2 * d * d;
    w = k.shrink * w - k.step_size * m / (sqrt(v) * k.root_correction + k.eps);
    state[0] = m;
    state[1] = v;
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

/// LAMB (You et al., 2020, algorithm 2, with phi(z) = z).
///   m, v as in Adam;  u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
///   w -= lr * (|w| / |u|) * u,  norms of the whole parameter; the ratio is 1 if one is 0
/// A separate pass computes the ratio. It computes u without storing m and v; the update computes u
/// again.
struct Lamb {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) { return Adam::state_name(i); }

  template <class S>
  struct Coefficients {
    S gradient_factor, beta1, intake1, beta2, intake2, eps, weight_decay;
    S correction;       ///< 1 / (1 - beta1^t)
    S root_correction;  ///< 1 / sqrt(1 - beta2^t)
    S step_size;        ///< lr * ratio
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const double t = static_cast<double>(in.count);
    return {S(in.gradient_factor),
            S(beta1),
            S(1 - beta1),
            S(beta2),
            S(1 - beta2),
            S(eps),
            S(weight_decay),
            S(1 / (1 - pow(beta1, t))),
            S(1 / sqrt(1 - pow(beta2, t))),
            S(in.learning_rate * in.trust_ratio)};
  }
  /// Returns u; updates the states in place.
  template <class V, class S>
  FIRN_HD static V direction(const Coefficients<S>& k, V w, V g, V* state) {
    state[0] = k.beta1 * state[0] + k.intake1 * g;
    state[1] = k.beta2 * state[1] + k.intake2 * g * g;
    return k.correction * state[0] / (sqrt(state[1]) * k.root_correction + k.eps) +
           k.weight_decay * w;
  }
  /// |w| / |u|, from the sums of squares of w and u.
  FIRN_HD static double trust_ratio(double weight, double update) {
    return weight > 0 && update > 0 ? sqrt(weight) / sqrt(update) : 1.0;
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    w -= k.step_size * direction(k, w, g, state);
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
    const V up = where(c > V(0), V(1), V(0)), down = where(c < V(0), V(1), V(0));
    w = k.shrink * w - k.lr * (up - down);
    state[0] = k.beta2 * state[0] + k.intake2 * g;
  }
};

/// The end of a rule that is computed for a parameter as a whole, by tensor operations: its new
/// weight stands in the gradient's place.
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

/// What the magnitude of `g` is limited to: for an update that takes weights there, to nothing.
template <class Rule>
FIRN_HD constexpr double value_limit(const Rule&, double limit) {
  return limit;
}
FIRN_HD constexpr double value_limit(const Replace&, double) {
  return static_cast<double>(HUGE_VALF);
}

/// The weights that schedule-free training computes gradients at: between z and x.
template <class V>
FIRN_HD V training_weight(V z, V x, V beta1) {
  return z + beta1 * (x - z);
}

/// Schedule-free AdamW (Defazio et al., 2024, "The Road Less Scheduled", algorithm 1; PyPI's
/// schedulefree 1.4, AdamWScheduleFree, whose formulas keep y in place of x). The weight w is y.
///   v = beta2 * v + (1 - beta2) * g^2
///   u = g / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * y
///   z -= lr * u;   x += share * (z - x);   y = (1 - beta1) * z + beta1 * x
struct ScheduleFree {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;

  static constexpr int kStates = 3;
  static constexpr const char* state_name(int i) {
    if (i == 2) return "second_moment";
    return i == 0 ? "fast_weight" : "averaged_weight";
  }

  template <class S>
  struct Coefficients {
    S gradient_factor, lr, weight_decay, beta1, beta2, intake2, eps, share;
    S root_correction;  ///< 1 / sqrt(1 - beta2^t)
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const double t = static_cast<double>(in.count);
    return {S(in.gradient_factor),
            S(in.learning_rate),
            S(weight_decay),
            S(beta1),
            S(beta2),
            S(1 - beta2),
            S(eps),
            S(in.share),
            S(1 / sqrt(1 - pow(beta2, t)))};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V v = k.beta2 * state[2] + k.intake2 * g * g;
    const V u = g / (sqrt(v) * k.root_correction + k.eps) + k.weight_decay * w;
    const V z = state[0] - k.lr * u;
    const V x = moving_average(state[1], z, k.share);
    w = training_weight(z, x, k.beta1);
    state[0] = z;
    state[1] = x;
    state[2] = v;
  }
};

/// Whether the rule has a trust ratio.
template <class Rule>
constexpr bool has_trust_ratio(const Rule&) {
  return false;
}
constexpr bool has_trust_ratio(const Lamb&) { return true; }

}  // namespace firn::math
