// Elementwise operations of one operand. A struct defines each:
//
//   f(x, p)        the value
//   df(dy, s, p)   the gradient with respect to x, from the output's gradient dy and what was saved
//   saves          what s is: nothing (s is not read), the input, or the output
//   autocast       what autocast does to it
//   integers       whether i32, i64 and u8 are allowed
//
// The list at the end of this file generates the enum, the CPU and CUDA dispatch, the public
// functions NAME and NAME_, and the tests' table. A new operation needs the struct, an entry in the
// list, and two declarations in include/firn/ops/ops.h; without those it does not compile.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// Scalar parameters of an op.
struct Args {
  double a = 0;
  double b = 0;
};

enum class Saves : unsigned char { none, input, output };

/// lower: run in the autocast dtype. fp32: cast 16-bit operands up first. promote: run in the
/// widest dtype among the operands. keep: run in the operand's own dtype.
enum class Autocast : unsigned char { lower, fp32, promote, keep };

/// Defaults of most structs.
struct UnaryDefaults {
  static constexpr Autocast autocast = Autocast::keep;
  static constexpr bool integers = false;
};

// ---- Shared pieces ----

/// 1/(1 + e^-x) without overflow at either end.
template <class V>
FIRN_HD V logistic(V x) {
  const V e = exp(-abs(x));
  return where(x >= V(0), V(1), e) / (V(1) + e);
}

/// log(1 + e^x) without overflow or cancellation.
template <class V>
FIRN_HD V log_one_plus_exp(V x) {
  return max(x, V(0)) + log1p(exp(-abs(x)));
}

// ---- The operations ----

struct Neg : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return -x;
  }
  template <class V>
  FIRN_HD static V df(V dy, V, Args) {
    return -dy;
  }
};

struct Abs : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return abs(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return where(x > V(0), dy, where(x < V(0), -dy, V(0)));
  }
};

struct Exp : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return exp(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return dy * y;
  }
};

struct Log : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return log(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / x;
  }
};

struct Sqrt : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return sqrt(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return V(0.5) * dy / y;
  }
};

struct Rsqrt : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return rsqrt(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return V(-0.5) * dy * (y * y * y);
  }
};

struct Square : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return x * x;
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return V(2) * dy * x;
  }
};

struct Reciprocal : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return V(1) / x;
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return -dy * (y * y);
  }
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

struct Sin : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return sin(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * cos(x);
  }
};

struct Cos : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return cos(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return -dy * sin(x);
  }
};

struct Clamp : UnaryDefaults {  // a: low, b: high
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return min(max(x, V(p.a)), V(p.b));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return where(x < V(p.a), V(0), where(x > V(p.b), V(0), dy));
  }
};

// ---- A tensor and a number: what add(x, 2.0) and the like run ----

struct AddNumber : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return x + V(p.a);
  }
  template <class V>
  FIRN_HD static V df(V dy, V, Args) {
    return dy;
  }
};

struct MulNumber : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return x * V(p.a);
  }
  template <class V>
  FIRN_HD static V df(V dy, V, Args p) {
    return dy * V(p.a);
  }
};

struct DivNumber : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return x / V(p.a);
  }
  template <class V>
  FIRN_HD static V df(V dy, V, Args p) {
    return dy / V(p.a);
  }
};

struct PowNumber : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return pow(x, V(p.a));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return p.a == 0 ? V(0) : V(V(p.a) * dy * pow(x, V(p.a - 1)));
  }
};

struct NumberSub : UnaryDefaults {  // a - x
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return V(p.a) - x;
  }
  template <class V>
  FIRN_HD static V df(V dy, V, Args) {
    return -dy;
  }
};

struct NumberDiv : UnaryDefaults {  // a / x
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    return V(p.a) / x;
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args p) {
    return -dy * (V(p.a) / x) / x;
  }
};

// ---- The list ----
// PLAIN(function, struct): no parameter. ONE and TWO name their parameters as ops.h does.
// NUMBER: run by the overloads that take a tensor and a number; no public function of its own.
// clang-format off
#define FIRN_UNARY_OPS(PLAIN, ONE, TWO, NUMBER) \
  PLAIN(neg, Neg)                               \
  PLAIN(abs, Abs)                               \
  PLAIN(exp, Exp)                               \
  PLAIN(log, Log)                               \
  PLAIN(sqrt, Sqrt)                             \
  PLAIN(rsqrt, Rsqrt)                           \
  PLAIN(square, Square)                         \
  PLAIN(reciprocal, Reciprocal)                 \
  PLAIN(relu, Relu)                             \
  ONE(leaky_relu, LeakyRelu, slope)             \
  ONE(elu, Elu, alpha)                          \
  PLAIN(gelu, Gelu)                             \
  PLAIN(gelu_tanh, GeluTanh)                    \
  PLAIN(sigmoid, Sigmoid)                       \
  PLAIN(silu, Silu)                             \
  PLAIN(tanh, Tanh)                             \
  PLAIN(softplus, Softplus)                     \
  PLAIN(sin, Sin)                               \
  PLAIN(cos, Cos)                               \
  TWO(clamp, Clamp, low, high)                  \
  NUMBER(add_number, AddNumber)                 \
  NUMBER(mul_number, MulNumber)                 \
  NUMBER(div_number, DivNumber)                 \
  NUMBER(pow_number, PowNumber)                 \
  NUMBER(number_sub, NumberSub)                 \
  NUMBER(number_div, NumberDiv)
/// The same list for users that ignore the parameters' names: EACH(function, struct, ...).
#define FIRN_EACH_UNARY(EACH) FIRN_UNARY_OPS(EACH, EACH, EACH, EACH)

enum class UnaryOp : unsigned char {
#define FIRN_ENUMERATOR(name, ...) name,
  FIRN_EACH_UNARY(FIRN_ENUMERATOR)
#undef FIRN_ENUMERATOR
};

struct UnaryInfo {
  UnaryOp op;
  const char* name;
  Saves saves;
  Autocast autocast;
  bool integers;
};

/// In the order of the enum: kUnaryOps[int(op)].
inline constexpr UnaryInfo kUnaryOps[] = {
#define FIRN_INFO(name, Op, ...) {UnaryOp::name, #name, Op::saves, Op::autocast, Op::integers},
  FIRN_EACH_UNARY(FIRN_INFO)
#undef FIRN_INFO
};
// clang-format on
inline constexpr int kUnaryCount = sizeof(kUnaryOps) / sizeof(kUnaryOps[0]);
constexpr const UnaryInfo& info(UnaryOp op) { return kUnaryOps[static_cast<int>(op)]; }

}  // namespace firn::math
