// Update rules with first and second moments: Adam and its kin. rules.h lists a rule's members.
#pragma once

#include "kernels/math/optim/step_input.h"

namespace firn::math {

/// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
template <class V, class K>
FIRN_HD void add_moments(const K& k, V g, V* state) {
  state[0] = k.beta1 * state[0] + k.intake1 * g;
  state[1] = k.beta2 * state[1] + k.intake2 * g * g;
}

/// Adam (Kingma & Ba, 2015, algorithm 1). weight_decay is added to the gradient (L2), or,
/// decoupled, shrinks the weight directly: AdamW (Loshchilov & Hutter, 2019, algorithm 2).
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
    add_moments(k, g + k.l2 * w, state);
    w = k.shrink * w - k.step_size * state[0] / (sqrt(state[1]) * k.root_correction + k.eps);
  }
};

/// Adam that divides by the largest second moment so far (Reddi, Kale & Kumar, 2018; the bias
/// correction is torch.optim's).
///   m, v as in Adam;  u = max(u, v);  the weight's update with u in place of v
struct AmsGrad : Adam {
  static constexpr int kStates = 3;
  static constexpr const char* state_name(int i) {
    return i == 2 ? "largest_second_moment" : Adam::state_name(i);
  }

  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    add_moments(k, g + k.l2 * w, state);
    state[2] = max(state[2], state[1]);
    w = k.shrink * w - k.step_size * state[0] / (sqrt(state[2]) * k.root_correction + k.eps);
  }
};

/// The momentum of update t of NAdam, and the product of those of updates 1 to t, to 1e-20.
struct NesterovMomentum {
  double beta1, momentum_decay;

  FIRN_HD double at(double t) const { return beta1 * (1 - 0.5 * pow(0.96, t * momentum_decay)); }
  FIRN_HD double product(std::int64_t t) const {
    const double shrink = pow(0.96, momentum_decay);
    double out = 1, power = 1;
    for (std::int64_t i = 1; i <= t && out > 1e-20; ++i) {
      power *= shrink;
      if (power < 1e-18) return out * pow(beta1, static_cast<double>(t - i + 1));
      out *= beta1 * (1 - 0.5 * power);
    }
    return out;
  }
};

/// NAdam (Dozat, 2016), as in torch.optim. Weight decay as in Adam.
///   m, v as in Adam;  c_t = beta1 (1 - 0.96^(t momentum_decay) / 2);  p = c_1 c_2 ... c_t
///   w -= lr ((1 - c_t) / (1 - p) g + c_(t+1) / (1 - p c_(t+1)) m) / (sqrt(v / (1 - beta2^t)) +
///   eps)
struct NAdam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) { return Adam::state_name(i); }

  template <class S>
  struct Coefficients {
    S gradient_factor, beta1, intake1, beta2, intake2, eps;
    S l2, shrink;              ///< as in Adam
    S of_gradient, of_moment;  ///< factors of g and m
    S root_correction;         ///< 1 / sqrt(1 - beta2^t)
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const Adam::Coefficients<S> adam =
        Adam{beta1, beta2, eps, weight_decay, decoupled_weight_decay}.template prepare<S>(in);
    const NesterovMomentum momentum{beta1, momentum_decay};
    const double t = static_cast<double>(in.count), product = momentum.product(in.count);
    const double next = momentum.at(t + 1);
    return {adam.gradient_factor,
            adam.beta1,
            adam.intake1,
            adam.beta2,
            adam.intake2,
            adam.eps,
            adam.l2,
            adam.shrink,
            S(in.learning_rate * (1 - momentum.at(t)) / (1 - product)),
            S(in.learning_rate * next / (1 - product * next)),
            adam.root_correction};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    const V d = g + k.l2 * w;
    add_moments(k, d, state);
    w = k.shrink * w -
        (k.of_gradient * d + k.of_moment * state[0]) / (sqrt(state[1]) * k.root_correction + k.eps);
  }
};

/// RAdam (Liu et al., 2020, algorithm 2), as in torch.optim. Weight decay as in Adam.
///   m, v as in Adam;  r_max = 2 / (1 - beta2) - 1;  r = r_max - 2 t beta2^t / (1 - beta2^t)
///   r > 5:  w -= lr rectifier (m / (1 - beta1^t)) sqrt(1 - beta2^t) / (sqrt(v) + eps),
///           rectifier^2 = (r - 4) (r - 2) r_max / ((r_max - 4) (r_max - 2) r)
///   else    w -= lr m / (1 - beta1^t)
struct RAdam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;

  static constexpr int kStates = 2;
  static constexpr const char* state_name(int i) { return Adam::state_name(i); }

  template <class S>
  struct Coefficients {
    S gradient_factor, beta1, intake1, beta2, intake2, eps;
    S l2, shrink;          ///< as in Adam
    S plain, by_variance;  ///< factors of m, and of m / (sqrt(v) + eps); one of them is 0
    S most;                ///< largest number, so that no infinity meets an m of 0
  };
  template <class S>
  FIRN_HD Coefficients<S> prepare(const StepInput& in) const {
    const Adam::Coefficients<S> adam =
        Adam{beta1, beta2, eps, weight_decay, decoupled_weight_decay}.template prepare<S>(in);
    const double t = static_cast<double>(in.count), power = pow(beta2, t);
    const double step_size = in.learning_rate / (1 - pow(beta1, t));
    const double most = 2 / (1 - beta2) - 1, r = most - 2 * t * power / (1 - power);
    const bool rectified = r > 5;
    const double by_variance =
        rectified ? step_size * sqrt(1 - power) *
                        sqrt((r - 4) * (r - 2) * most / ((most - 4) * (most - 2) * r))
                  : 0;
    return {adam.gradient_factor,
            adam.beta1,
            adam.intake1,
            adam.beta2,
            adam.intake2,
            adam.eps,
            adam.l2,
            adam.shrink,
            rectified ? S(0) : S(step_size),
            S(by_variance),
            S(sizeof(S) == 8 ? 0x1.fffffffffffffp1023 : 0x1.fffffep127)};
  }
  template <class V, class S>
  FIRN_HD static void apply(const Coefficients<S>& k, V& w, V g, V* state) {
    add_moments(k, g + k.l2 * w, state);
    const V factor = min(k.by_variance / (sqrt(state[1]) + k.eps), V(k.most));
    w = k.shrink * w - (k.plain + factor) * state[0];
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
    add_moments(k, g, state);
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

/// Weights at which schedule-free training computes gradients: between z and x.
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

}  // namespace firn::math
