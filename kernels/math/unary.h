// Elementwise operations of one operand. A struct defines each:
//
//   f(x, p)        the value
//   df(dy, s, p)   the gradient with respect to x, from the output's gradient dy and what was saved
//   saves          the meaning of s: nothing (s is not read), the input, or the output
//   autocast       the dtype in which it runs under autocast
//   floats         true if floating dtypes are allowed
//   integers       true if i32, i64 and u8 are allowed
//   gives_bool     true if the result is bool; there is no gradient, and bool is allowed too
//   flat           true if the gradient is 0 everywhere; there is no df
//
// Activations are in math/activation.h, functions of angles in math/trigonometry.h. The list at the
// end of this file generates the enum, the CPU and CUDA dispatch, the public functions NAME and
// NAME_, and the tests' table. A new operation needs the struct, an entry in the list, and two
// declarations in include/firn/ops/elementwise.h; without those it does not compile.
#pragma once

#include "kernels/math/activation.h"
#include "kernels/math/trigonometry.h"

namespace firn::math {

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

struct Log10 : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return log10(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / (V(2.30258509299404568402) * x);
  }
};

/// The formulas of HardTanh, which is clamp() by another name. The derivative is 0 at a bound.
struct Clamp : HardTanh {};

struct Log1p : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return log1p(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / (V(1) + x);
  }
};

struct Expm1 : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return expm1(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return dy * (y + V(1));
  }
};

struct Log2 : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return log2(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / (V(0.69314718055994530942) * x);
  }
};

struct Exp2 : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return exp2(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return V(0.69314718055994530942) * dy * y;
  }
};

struct Erf : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return erf(x);
  }
  /// 2/sqrt(pi) e^(-x^2)
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return V(1.12837916709551257390) * dy * exp(-(x * x));
  }
};

struct Erfc : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return erfc(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return -Erf::df(dy, x, Args{});
  }
};

struct NanToNum : UnaryDefaults {  // a: for NaN, b: for infinity, c: for -infinity
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args p) {
    const V infinite = where(x > V(0), V(p.b), V(p.c));
    return where(x - x == V(0), x, where(x != x, V(p.a), infinite));
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return where(x - x == V(0), dy, V(0));
  }
};

// ---- Steps: the derivative is 0 wherever there is one, and so is the gradient, as in PyTorch ----

struct StepDefaults : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  static constexpr bool flat = true;
};

#define FIRN_STEP(Name, function)   \
  struct Name : StepDefaults {      \
    template <class V>              \
    FIRN_HD static V f(V x, Args) { \
      return function(x);           \
    }                               \
  }
FIRN_STEP(Floor, floor);
FIRN_STEP(Ceil, ceil);
FIRN_STEP(Round, rint);  // half to even
FIRN_STEP(Trunc, trunc);
#undef FIRN_STEP

struct Sign : StepDefaults {
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return where(x > V(0), V(1), where(x < V(0), V(-1), V(0)));
  }
};

// ---- Questions: the result is bool ----

struct QuestionDefaults : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool integers = true;
  static constexpr bool gives_bool = true;
};

struct IsNan : QuestionDefaults {
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return where(x != x, V(1), V(0));
  }
};

struct IsFinite : QuestionDefaults {
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return is_zero(x - x);
  }
};

struct IsInf : QuestionDefaults {
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return where(x != x, V(0), is_zero(is_zero(x - x)));
  }
};

struct LogicalNot : QuestionDefaults {
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return is_zero(x);
  }
};

struct BitwiseNot : UnaryDefaults {
  static constexpr Saves saves = Saves::none;
  static constexpr bool floats = false;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return V(-1) - x;
  }
};

// ---- A tensor and a number: add(x, 2.0) and the like run these ----

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
// PLAIN(function, struct): no parameter. ONE and TWO name their parameters as the headers do.
// QUESTION has no form that writes in place. Functions that are written out run INNER, such as the
// overloads that take a tensor and a number.
// clang-format off
#define FIRN_FUNCTION_OPS(PLAIN, ONE, TWO, QUESTION, INNER) \
  PLAIN(neg, Neg)                                           \
  PLAIN(abs, Abs)                                           \
  PLAIN(exp, Exp)                                           \
  PLAIN(log, Log)                                           \
  PLAIN(sqrt, Sqrt)                                         \
  PLAIN(rsqrt, Rsqrt)                                       \
  PLAIN(square, Square)                                     \
  PLAIN(reciprocal, Reciprocal)                             \
  PLAIN(sin, Sin)                                           \
  PLAIN(cos, Cos)                                           \
  PLAIN(tan, Tan)                                           \
  PLAIN(asin, Asin)                                         \
  PLAIN(acos, Acos)                                         \
  PLAIN(atan, Atan)                                         \
  PLAIN(sinh, Sinh)                                         \
  PLAIN(cosh, Cosh)                                         \
  PLAIN(asinh, Asinh)                                       \
  PLAIN(acosh, Acosh)                                       \
  PLAIN(atanh, Atanh)                                       \
  PLAIN(log10, Log10)                                       \
  PLAIN(log1p, Log1p)                                       \
  PLAIN(expm1, Expm1)                                       \
  PLAIN(log2, Log2)                                         \
  PLAIN(exp2, Exp2)                                         \
  PLAIN(erf, Erf)                                           \
  PLAIN(erfc, Erfc)                                         \
  PLAIN(floor, Floor)                                       \
  PLAIN(ceil, Ceil)                                         \
  PLAIN(round, Round)                                       \
  PLAIN(trunc, Trunc)                                       \
  PLAIN(sign, Sign)                                         \
  TWO(clamp, Clamp, low, high)                              \
  QUESTION(isnan, IsNan)                                    \
  QUESTION(isinf, IsInf)                                    \
  QUESTION(isfinite, IsFinite)                              \
  QUESTION(logical_not, LogicalNot)                         \
  INNER(bitwise_not, BitwiseNot)                            \
  INNER(nan_to_num, NanToNum)                               \
  INNER(add_number, AddNumber)                              \
  INNER(mul_number, MulNumber)                              \
  INNER(div_number, DivNumber)                              \
  INNER(pow_number, PowNumber)                              \
  INNER(number_sub, NumberSub)                              \
  INNER(number_div, NumberDiv)
#define FIRN_UNARY_OPS(PLAIN, ONE, TWO, QUESTION, INNER)    \
  FIRN_FUNCTION_OPS(PLAIN, ONE, TWO, QUESTION, INNER)       \
  FIRN_ACTIVATION_OPS(PLAIN, ONE, TWO)
/// These lists for users that ignore the parameters' names: EACH(function, struct, ...).
#define FIRN_EACH_FUNCTION(EACH) FIRN_FUNCTION_OPS(EACH, EACH, EACH, EACH, EACH)
#define FIRN_EACH_UNARY(EACH) FIRN_UNARY_OPS(EACH, EACH, EACH, EACH, EACH)

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
  bool floats;
  bool integers;
  bool gives_bool;
  bool flat;

  /// True if kernels compute the gradient.
  constexpr bool has_gradient() const { return floats && !gives_bool && !flat; }
};

/// Facts about the operations in the order of the enum: kUnaryOps[int(op)].
inline constexpr UnaryInfo kUnaryOps[] = {
#define FIRN_INFO(name, Op, ...)                                         \
  {UnaryOp::name, #name,        Op::saves,      Op::autocast,            \
   Op::floats,    Op::integers, Op::gives_bool, Op::flat},
  FIRN_EACH_UNARY(FIRN_INFO)
#undef FIRN_INFO
};
// clang-format on
constexpr const UnaryInfo& info(UnaryOp op) { return kUnaryOps[static_cast<int>(op)]; }

}  // namespace firn::math
