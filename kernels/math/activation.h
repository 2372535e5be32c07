// Activations: elementwise operations of one operand, defined as in math/unary.h, whose list takes
// up the one at the end of this file.
#pragma once

#include "kernels/math/operation.h"

namespace firn::math {

/// Defaults of most structs of one operand.
struct UnaryDefaults : OperationDefaults {
  static constexpr Autocast autocast = Autocast::keep;
  static constexpr bool flat = false;  ///< the derivative is 0 wherever it exists
};

struct Relu : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return max(x, V(0));
  }
  /// A NaN output passes the gradient on.
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return where(y <= V(0), V(0), dy);
  }
};

struct LeakyRelu : UnaryDefaults {  // a: slope
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(x > V(0), x, V(p.a) * x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x > V(0), dy, V(p.a) * dy);
  }
};

struct Elu : UnaryDefaults {  // a: alpha
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(x > V(0), x, V(p.a) * expm1(x));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x > V(0), dy, V(p.a) * dy * exp(x));
  }
};

struct Gelu : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x * standard_normal(x).cdf;
  }
  /// Phi(x) + x phi(x)
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    const auto z = standard_normal(x);
    return dy * (z.cdf + x * z.density);
  }
};

struct GeluTanh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  /// (1 + tanh u)/2 = logistic(2u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation on the left.
  template <class V>
  FIRN_HD static V gate(V x) {
    return logistic(V(1.59576912160573071176) * x * (V(1) + V(0.044715) * (x * x)));
  }
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x * gate(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    const V g = gate(x);
    const V slope = V(1.59576912160573071176) * (V(1) + V(3 * 0.044715) * (x * x));
    return dy * (g + x * (g * (V(1) - g)) * slope);
  }
};

struct Sigmoid : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return logistic(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return dy * (y * (V(1) - y));
  }
};

struct Silu : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x * logistic(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    const V s = logistic(x);
    return dy * (s * (V(1) + x * (V(1) - s)));
  }
};

struct Tanh : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return tanh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return dy * ((V(1) - y) * (V(1) + y));
  }
};

struct Softplus : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return log_one_plus_exp(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * logistic(x);
  }
};

struct HardTanh : UnaryDefaults {  // a: low, b: high; Clamp too
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return min(max(x, V(p.a)), V(p.b));
  }
  /// The derivative is 0 at the bounds too, as in PyTorch.
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x <= V(p.a), V(0), where(x >= V(p.b), V(0), dy));
  }
};

struct HardSigmoid : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return min(max(x + V(3), V(0)), V(6)) / V(6);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return where(x > V(-3), where(x < V(3), dy / V(6), V(0)), V(0));
  }
};

struct HardSwish : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x * (min(max(x + V(3), V(0)), V(6)) / V(6));
  }
  /// Where x is a bound, the derivative is that of the outer side, as in PyTorch.
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return where(x <= V(-3), V(0), where(x < V(3), dy * (x / V(3) + V(0.5)), dy));
  }
};

struct Softsign : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x / (V(1) + abs(x));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    const V d = V(1) + abs(x);
    return dy / (d * d);
  }
};

/// x tanh(softplus(x)) (Misra 2019). With e = e^x and n = e (e + 2) the tanh is n/(n + 2). Beyond
/// x = 25 that is 1 in f64.
struct Mish : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    const V e = exp(min(x, V(25)));
    const V n = e * (e + V(2));
    return x * (n / (n + V(2)));
  }
  /// w + x s (1 - w) (1 + w), with w the tanh and s = e/(1 + e); 1 - w = 2/(n + 2) does not cancel.
  /// One division serves both.
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    const V e = exp(min(x, V(25)));
    const V n = e * (e + V(2)), d = n + V(2), g = V(1) + e;
    const V q = V(1) / (d * g);
    const V r = q * g, w = n * r;
    const V slope = w + x * (e * d * q) * (V(2) * r) * (V(1) + w);
    return where(x > V(25), dy, dy * slope);
  }
};

struct Celu : UnaryDefaults {  // a: alpha (Barron 2017)
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(x > V(0), x, V(p.a) * expm1(x / V(p.a)));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x <= V(0), dy * exp(x / V(p.a)), dy);
  }
};

/// scale * elu(x, alpha), with the numbers of Klambauer et al. 2017.
struct Selu : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr double scale = 1.0507009873554804934;
  static constexpr double alpha = 1.6732632423543772848;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return where(x > V(0), V(scale) * x, V(scale * alpha) * expm1(x));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return where(x <= V(0), V(scale * alpha) * dy * exp(x), V(scale) * dy);
  }
};

struct Threshold : UnaryDefaults {  // a: threshold, b: value
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(x <= V(p.a), V(p.b), x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x <= V(p.a), V(0), dy);
  }
};

struct HardShrink : UnaryDefaults {  // a: lambda
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(abs(x) <= V(p.a), V(0), x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(abs(x) <= V(p.a), V(0), dy);
  }
};

struct SoftShrink : HardShrink {  // has the same derivative
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return where(x > V(p.a), x - V(p.a), where(x < V(-p.a), x + V(p.a), V(0) * x));
  }
};

struct LogSigmoid : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return V(0) - log_one_plus_exp(-x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * logistic(-x);
  }
};

// ---- The list, for math/unary.h ----
// clang-format off
#define FIRN_ACTIVATION_OPS(PLAIN, ONE, TWO) \
  PLAIN(relu, Relu)                          \
  ONE(leaky_relu, LeakyRelu, slope)          \
  ONE(elu, Elu, alpha)                       \
  PLAIN(gelu, Gelu)                          \
  PLAIN(gelu_tanh, GeluTanh)                 \
  PLAIN(sigmoid, Sigmoid)                    \
  PLAIN(silu, Silu)                          \
  PLAIN(tanh, Tanh)                          \
  PLAIN(softplus, Softplus)                  \
  PLAIN(hardswish, HardSwish)                \
  PLAIN(hardsigmoid, HardSigmoid)            \
  PLAIN(softsign, Softsign)                  \
  PLAIN(mish, Mish)                          \
  ONE(celu, Celu, alpha)                     \
  PLAIN(selu, Selu)                          \
  PLAIN(logsigmoid, LogSigmoid)              \
  TWO(hardtanh, HardTanh, min_val, max_val)  \
  TWO(threshold, Threshold, threshold, value) \
  ONE(hardshrink, HardShrink, lambda)        \
  ONE(softshrink, SoftShrink, lambda)
#define FIRN_EACH_ACTIVATION(EACH) FIRN_ACTIVATION_OPS(EACH, EACH, EACH)
// clang-format on

}  // namespace firn::math
