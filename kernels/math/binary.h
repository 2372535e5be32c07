// Elementwise operations of two operands, defined as in math/unary.h:
//
//   f(a, b, p)          the value; a comparison's is 1 or 0
//   dfa(dy, a, b, p)    the gradient with respect to a
//   dfb(dy, a, b, p)    the gradient with respect to b
//   dfa_reads, dfb_reads  the operands among a and b that these two read: no others are saved
//   passes              the gradients that are dy itself
//
// Elements of losses are in math/loss.h. The list is at the end of this file; its entries have
// public functions in include/firn/ops/elementwise.h and ops.h.
//
// A derivative is differentiated again, in the same formula. So a special case replaces an operand
// at which the formula has no value, and never a value that the formula has: a constant in its
// place would have derivative 0.
#pragma once

#include "kernels/math/activation.h"
#include "kernels/math/loss.h"

namespace firn::math {

struct Add : BinaryDefaults {
  static constexpr bool integers = true;
  static constexpr Operands passes = kBoth;
  static constexpr Operands dfa_reads = kNeither;
  static constexpr Operands dfb_reads = kNeither;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return a + b;
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V, Args) {
    return dy;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V, V, Args) {
    return dy;
  }
};

struct Sub : Add {
  static constexpr Operands passes = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return a - b;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V, V, Args) {
    return -dy;
  }
};

struct Mul : BinaryDefaults {
  static constexpr bool integers = true;
  static constexpr Operands dfa_reads = kB;
  static constexpr Operands dfb_reads = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return a * b;
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V b, Args) {
    return dy * b;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V, Args) {
    return dy * a;
  }
};

struct Div : BinaryDefaults {
  static constexpr Operands dfa_reads = kB;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return a / b;
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V b, Args) {
    return dy / b;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return -dy * (a / b) / b;
  }
};

struct Pow : BinaryDefaults {
  static constexpr Autocast autocast = Autocast::fp32;
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return pow(a, b);
  }
  /// b a^(b-1); 0 where b = 0, also if a is 0 or not finite.
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    const V base = where(a == V(0), V(1), where(a - a == V(0), a, V(1)));
    return dy * b * pow(where(b == V(0), base, a), b - V(1));
  }
  /// a^b log a; 0 where a = 0 and b >= 0, where a^b no longer depends on b.
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    const V base = where(a == V(0), where(b >= V(0), V(1), a), a);
    return dy * pow(base, b) * log(base);
  }
};

// Minimum and maximum: an operand gets no gradient if it lost, half in a tie, else all. So if
// either is NaN, both get all, as in PyTorch.

struct Minimum : BinaryDefaults {
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a < b, a, where(a != a, a, b));
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return where(a > b, V(0), where(a == b, V(0.5) * dy, dy));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return where(b > a, V(0), where(a == b, V(0.5) * dy, dy));
  }
};

struct Maximum : BinaryDefaults {
  static constexpr bool integers = true;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a > b, a, where(a != a, a, b));
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return where(a < b, V(0), where(a == b, V(0.5) * dy, dy));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return where(b < a, V(0), where(a == b, V(0.5) * dy, dy));
  }
};

/// silu(a) b (Shazeer 2020, "GLU variants improve transformer"). With s = logistic(a) the
/// derivative of silu is s (1 + a (1 - s)).
struct SwiGlu : BinaryDefaults {
  static constexpr Operands dfb_reads = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return Silu::f(a, Args{}) * b;
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return Silu::df(dy * b, a, Args{});
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V, Args) {
    return dy * Silu::f(a, Args{});
  }
};

struct Atan2 : BinaryDefaults {  // the angle of the point (b, a)
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return atan2(a, b);
  }
  /// 0 at the origin, as in PyTorch.
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    const V square = a * a + b * b;
    const V share = b / where(square == V(0), V(1), square);
    return dy * where(square == V(0), V(0), share);
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args p) {
    return -dfa(dy, b, a, p);
  }
};

struct Hypot : BinaryDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return hypot(a, b);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return dy * (a / hypot(a, b));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return dy * (b / hypot(a, b));
  }
};

// Remainders: the derivative with respect to b is minus the quotient, a whole number. Rounding
// (a - remainder)/b finds it even if a/b itself rounds up to the next one.

struct Fmod : BinaryDefaults {  // has the sign of a
  static constexpr bool integers = true;
  static constexpr Operands dfa_reads = kNeither;
  static constexpr Operands passes = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return fmod(a, b);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V, Args) {
    return dy;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args p) {
    return -dy * rint((a - f(a, b, p)) / b);
  }
};

struct Remainder : Fmod {  // has the sign of b
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    const V m = fmod(a, b), other = m + b;
    const V signed_as_b = where(b < V(0), where(m < V(0), m, other), where(m < V(0), other, m));
    return where(m == V(0), m, signed_as_b);
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args p) {
    return -dy * rint((a - f(a, b, p)) / b);
  }
};

/// log(e^a + e^b). Equal infinities are a case of their own, since inf - inf is NaN.
struct LogAddExp : BinaryDefaults {
  /// a - b, and 0 for equal infinities.
  template <class V>
  FIRN_HD static V apart(V a, V b) {
    return where(a == b, where(a - a == V(0), a - b, V(0)), a - b);
  }
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    const V sum = max(a, b) + log1p(exp(-abs(apart(a, b))));
    return where(a == b, a + V(0.69314718055994530942), sum);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return dy * logistic(apart(a, b));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args p) {
    return dfa(dy, b, a, p);
  }
};

/// b is the slope on the left (He et al. 2015).
struct PRelu : BinaryDefaults {
  static constexpr Operands dfb_reads = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a > V(0), a, b * a);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return where(a > V(0), dy, b * dy);
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V, Args) {
    return where(a > V(0), V(0), a * dy);
  }
};

// ---- Comparisons and logic: the result is bool ----

struct CompareDefaults : BinaryDefaults {
  static constexpr bool integers = true;
  static constexpr bool gives_bool = true;
};

#define FIRN_COMPARISON(Name, sign)       \
  struct Name : CompareDefaults {         \
    template <class V>                    \
    FIRN_HD static V f(V a, V b, Args) {  \
      return where(a sign b, V(1), V(0)); \
    }                                     \
  }
FIRN_COMPARISON(Eq, ==);
FIRN_COMPARISON(Ne, !=);
FIRN_COMPARISON(Lt, <);
FIRN_COMPARISON(Le, <=);
FIRN_COMPARISON(Gt, >);
FIRN_COMPARISON(Ge, >=);
#undef FIRN_COMPARISON

/// a = b, or a finite distance |a - b| <= |b p.a| + p.b, which none is if p.b is -1 and p.a is 0.
/// If p.c is 1, NaN is close to NaN.
struct IsClose : CompareDefaults {
  static constexpr bool integers = false;
  template <class V>
  FIRN_HD static V f(V a, V b, Args p) {
    const V apart = a - b;
    const V bound = abs(b * V(p.a)) + V(p.b);  // abs() keeps compilers from one fused rounding
    const V near = where(apart - apart == V(0), where(abs(apart) <= bound, V(1), V(0)), V(0));
    return where(a == b, V(1), where(a != a, where(b != b, V(p.c), V(0)), near));
  }
};

struct LogicalAnd : CompareDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a == V(0), V(0), where(b == V(0), V(0), V(1)));
  }
};

struct LogicalOr : CompareDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a == V(0), where(b == V(0), V(0), V(1)), V(1));
  }
};

struct LogicalXor : CompareDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(a == V(0), where(b == V(0), V(0), V(1)), is_zero(b));
  }
};

// ---- Bits of integers and bools ----

struct BitwiseDefaults : BinaryDefaults {
  static constexpr Autocast autocast = Autocast::keep;
  static constexpr bool floats = false;
  static constexpr bool integers = true;
};

#define FIRN_BITWISE(Name, sign)         \
  struct Name : BitwiseDefaults {        \
    template <class V>                   \
    FIRN_HD static V f(V a, V b, Args) { \
      return a sign b;                   \
    }                                    \
  }
FIRN_BITWISE(BitwiseAnd, &);
FIRN_BITWISE(BitwiseOr, |);
FIRN_BITWISE(BitwiseXor, ^);
#undef FIRN_BITWISE

// ---- The list ----
// OPERATOR has a public function of two tensors, WITH_NUMBER also one of a tensor and a number.
// Functions that are written out run INNER, and the losses run theirs.
// clang-format off
#define FIRN_TENSOR_OPS(OPERATOR, WITH_NUMBER, INNER) \
  OPERATOR(add, Add)                                  \
  OPERATOR(sub, Sub)                                  \
  OPERATOR(mul, Mul)                                  \
  OPERATOR(div, Div)                                  \
  OPERATOR(pow, Pow)                                  \
  WITH_NUMBER(minimum, Minimum)                       \
  WITH_NUMBER(maximum, Maximum)                       \
  OPERATOR(swiglu, SwiGlu)                            \
  OPERATOR(atan2, Atan2)                              \
  OPERATOR(hypot, Hypot)                              \
  WITH_NUMBER(fmod, Fmod)                             \
  WITH_NUMBER(remainder, Remainder)                   \
  OPERATOR(logaddexp, LogAddExp)                      \
  INNER(prelu, PRelu)                                 \
  WITH_NUMBER(eq, Eq)                                 \
  WITH_NUMBER(ne, Ne)                                 \
  WITH_NUMBER(lt, Lt)                                 \
  WITH_NUMBER(le, Le)                                 \
  WITH_NUMBER(gt, Gt)                                 \
  WITH_NUMBER(ge, Ge)                                 \
  INNER(isclose, IsClose)                             \
  OPERATOR(logical_and, LogicalAnd)                   \
  OPERATOR(logical_or, LogicalOr)                     \
  OPERATOR(logical_xor, LogicalXor)                   \
  WITH_NUMBER(bitwise_and, BitwiseAnd)                \
  WITH_NUMBER(bitwise_or, BitwiseOr)                  \
  WITH_NUMBER(bitwise_xor, BitwiseXor)
#define FIRN_BINARY_OPS(OPERATOR, WITH_NUMBER, INNER) \
  FIRN_TENSOR_OPS(OPERATOR, WITH_NUMBER, INNER)       \
  FIRN_LOSS_OPS(INNER)
#define FIRN_EACH_TENSOR_OP(EACH) FIRN_TENSOR_OPS(EACH, EACH, EACH)
#define FIRN_EACH_BINARY(EACH) FIRN_BINARY_OPS(EACH, EACH, EACH)

enum class BinaryOp : unsigned char {
#define FIRN_ENUMERATOR(name, Op) name,
  FIRN_EACH_BINARY(FIRN_ENUMERATOR)
#undef FIRN_ENUMERATOR
};

struct BinaryInfo {
  BinaryOp op;
  const char* name;
  Autocast autocast;
  bool floats;
  bool integers;
  bool gives_bool;
  Operands dfa_reads;
  Operands dfb_reads;
  Operands passes;

  constexpr bool has_gradient() const { return floats && !gives_bool; }
};

/// Facts about the operations in the order of the enum: kBinaryOps[int(op)].
inline constexpr BinaryInfo kBinaryOps[] = {
#define FIRN_INFO(name, Op)                                                            \
  {BinaryOp::name, #name,         Op::autocast,  Op::floats, Op::integers,             \
   Op::gives_bool, Op::dfa_reads, Op::dfb_reads, Op::passes},
  FIRN_EACH_BINARY(FIRN_INFO)
#undef FIRN_INFO
};
// clang-format on
constexpr const BinaryInfo& info(BinaryOp op) { return kBinaryOps[static_cast<int>(op)]; }

}  // namespace firn::math
