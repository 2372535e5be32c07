// Elementwise operations of two operands, defined as in math/unary.h:
//
//   f(a, b, p)          the value; a comparison's is 1 or 0
//   dfa(dy, a, b, p)    the gradient with respect to a
//   dfb(dy, a, b, p)    the gradient with respect to b
//   dfa_reads, dfb_reads  which of a and b these two read: what is saved is no more than that
//
// The list is at the end of this file. OPERATOR and COMPARISON entries have public functions
// (include/firn/ops/ops.h); comparisons give bool and have no gradient. The losses run LOSS
// entries.
#pragma once

#include "kernels/math/macros.h"
#include "kernels/math/unary.h"

namespace firn::math {

/// A set of operands.
enum Operands : unsigned char { kNeither = 0, kA = 1, kB = 2, kBoth = 3 };

struct BinaryDefaults {
  static constexpr Autocast autocast = Autocast::promote;
  static constexpr bool integers = false;
  static constexpr bool compares = false;
  static constexpr Operands dfa_reads = kBoth;
  static constexpr Operands dfb_reads = kBoth;
};

struct Add : BinaryDefaults {
  static constexpr bool integers = true;
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

struct Sub : BinaryDefaults {
  static constexpr bool integers = true;
  static constexpr Operands dfa_reads = kNeither;
  static constexpr Operands dfb_reads = kNeither;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return a - b;
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V, Args) {
    return dy;
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
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return pow(a, b);
  }
  /// b a^(b-1); 0 where b = 0, also at a = 0.
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return where(b == V(0), V(0), dy * b * pow(a, b - V(1)));
  }
  /// a^b log a; 0 where a = 0 and b >= 0, where a^b no longer depends on b.
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    const V slope = dy * pow(a, b) * log(a);
    return where(a == V(0), where(b >= V(0), V(0), slope), slope);
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

// ---- Comparisons ----

struct CompareDefaults : BinaryDefaults {
  static constexpr bool integers = true;
  static constexpr bool compares = true;
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

// ---- Elements of losses: a is the prediction, b the target (include/firn/ops/losses.h) ----

struct LossDefaults : BinaryDefaults {
  static constexpr Autocast autocast = Autocast::fp32;
};

struct SquaredError : LossDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return (a - b) * (a - b);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return V(2) * dy * (a - b);
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return V(2) * dy * (b - a);
  }
};

struct AbsoluteError : LossDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return abs(a - b);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return where(a > b, dy, where(a < b, -dy, V(0)));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return where(b > a, dy, where(b < a, -dy, V(0)));
  }
};

struct Huber : LossDefaults {  // p.a: delta
  template <class V>
  FIRN_HD static V f(V a, V b, Args p) {
    const V delta(p.a);
    const V d = abs(a - b);
    return where(d > delta, delta * (d - V(0.5) * delta), V(0.5) * d * d);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args p) {
    return dy * min(max(a - b, V(-p.a)), V(p.a));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args p) {
    return dy * min(max(b - a, V(-p.a)), V(p.a));
  }
};

struct BceWithLogits : LossDefaults {
  static constexpr Operands dfb_reads = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    // In this order: softplus(a) - a b would cancel if a is large and b is 1.
    return (max(a, V(0)) - a * b) + log1p(exp(-abs(a)));
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return dy * (logistic(a) - b);
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V, Args) {
    return -dy * a;
  }
};

/// Of probabilities a, with logarithms of at least -100. The derivative divides by at least 1e-12,
/// as PyTorch's does.
struct Bce : LossDefaults {
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return (b - V(1)) * max(log1p(-a), V(-100)) - b * max(log(a), V(-100));
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V a, V b, Args) {
    return dy * (a - b) / max((V(1) - a) * a, V(1e-12));
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V, Args) {
    return dy * (max(log1p(-a), V(-100)) - max(log(a), V(-100)));
  }
};

struct KlDiv : LossDefaults {
  static constexpr Operands dfa_reads = kB;
  template <class V>
  FIRN_HD static V f(V a, V b, Args) {
    return where(b == V(0), V(0), b * (log(b) - a));
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V b, Args) {
    return -dy * b;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    return where(b == V(0), V(0), dy * (log(b) - a + V(1)));
  }
};

// ---- The list ----
// clang-format off
#define FIRN_BINARY_OPS(OPERATOR, COMPARISON, LOSS) \
  OPERATOR(add, Add)                                \
  OPERATOR(sub, Sub)                                \
  OPERATOR(mul, Mul)                                \
  OPERATOR(div, Div)                                \
  OPERATOR(pow, Pow)                                \
  OPERATOR(minimum, Minimum)                        \
  OPERATOR(maximum, Maximum)                        \
  OPERATOR(swiglu, SwiGlu)                          \
  COMPARISON(eq, Eq)                                \
  COMPARISON(ne, Ne)                                \
  COMPARISON(lt, Lt)                                \
  COMPARISON(le, Le)                                \
  COMPARISON(gt, Gt)                                \
  COMPARISON(ge, Ge)                                \
  LOSS(squared_error, SquaredError)                 \
  LOSS(absolute_error, AbsoluteError)               \
  LOSS(huber, Huber)                                \
  LOSS(bce_with_logits, BceWithLogits)              \
  LOSS(bce, Bce)                                    \
  LOSS(kl_div, KlDiv)
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
  bool integers;
  bool compares;
  Operands dfa_reads;
  Operands dfb_reads;
};

/// In the order of the enum: kBinaryOps[int(op)].
inline constexpr BinaryInfo kBinaryOps[] = {
#define FIRN_INFO(name, Op) \
  {BinaryOp::name, #name,         Op::autocast, Op::integers, \
   Op::compares,   Op::dfa_reads, Op::dfb_reads},
  FIRN_EACH_BINARY(FIRN_INFO)
#undef FIRN_INFO
};
// clang-format on
inline constexpr int kBinaryCount = sizeof(kBinaryOps) / sizeof(kBinaryOps[0]);
constexpr const BinaryInfo& info(BinaryOp op) { return kBinaryOps[static_cast<int>(op)]; }

}  // namespace firn::math
