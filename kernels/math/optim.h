// Update rules of the optimizers: each one formula, written once. A rule holds its hyper-parameters
// and has
//   kStates, state_name(i)   how many values it keeps per parameter element, and their names
//   prepare<S>(...)          what one step needs of the hyper-parameters, rounded once to S
//   apply<V>(k, w, g, state) one element: w and state in place, g the averaged gradient
// S and V are the compute type (float; double for f64 parameters). Nothing in apply() branches on
// data, so that loops over it vectorise. A new rule: a struct here, and its name in UpdateRule
// (kernels/optim.h).
//
// The formulas are those of torch.optim (SGD, Adam, AdamW).
#pragma once

#include "kernels/math/step_state.h"

namespace firn::math {

/// What is new in every step: read from device memory by the update kernel.
struct StepInput {
  double learning_rate;    ///< of the parameter's group
  double gradient_factor;  ///< takes the accumulated sum to the mean gradient, clipped
  std::int64_t count;      ///< updates of this parameter, this one included: 1 at the first
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

}  // namespace firn::math
