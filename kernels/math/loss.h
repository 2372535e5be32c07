// Elements of losses: a is the prediction, b the target (include/firn/ops/losses.h). They are
// operations of two operands as in math/binary.h, whose list takes up the one at the end.
#pragma once

#include "kernels/math/operation.h"

namespace firn::math {

/// A set of operands.
enum Operands : unsigned char { kNeither = 0, kA = 1, kB = 2, kBoth = 3, kC = 4 };

/// Defaults of most structs of two operands.
struct BinaryDefaults : OperationDefaults {
  static constexpr Autocast autocast = Autocast::promote;
  static constexpr Operands dfa_reads = kBoth;
  static constexpr Operands dfb_reads = kBoth;
  static constexpr Operands passes = kNeither;  ///< operands whose gradient is dy itself
};

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

/// Takes probabilities a, with logarithms of at least -100. The derivative divides by at least
/// 1e-12, as PyTorch's does.
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
    const V term = b * (log(where(b == V(0), V(1), b)) - a);
    return where(b == V(0), V(0), term);
  }
  template <class V>
  FIRN_HD static V dfa(V dy, V, V b, Args) {
    return -dy * b;
  }
  template <class V>
  FIRN_HD static V dfb(V dy, V a, V b, Args) {
    const V slope = dy * (log(where(b == V(0), V(1), b)) - a + V(1));
    return where(b == V(0), V(0), slope);
  }
};

// ---- The list, for math/binary.h ----
// clang-format off
#define FIRN_LOSS_OPS(LOSS)             \
  LOSS(squared_error, SquaredError)     \
  LOSS(absolute_error, AbsoluteError)   \
  LOSS(huber, Huber)                    \
  LOSS(bce_with_logits, BceWithLogits)  \
  LOSS(bce, Bce)                        \
  LOSS(kl_div, KlDiv)
// clang-format on

}  // namespace firn::math
