// Elementwise operations of three operands, defined as in math/binary.h: f(a, b, c, p), and
// df<i>(dy, a, b, c, p), the gradient with respect to operand i, which reads the set reads[i].
// Their public functions are written out (include/firn/ops/elementwise.h).
#pragma once

#include "kernels/math/binary.h"

namespace firn::math {

struct TernaryDefaults : OperationDefaults {
  static constexpr Autocast autocast = Autocast::promote;
  static constexpr int passes = kNeither;
};

/// a + c (b - a), from the nearer end: exact at c = 0 and c = 1.
struct Lerp : TernaryDefaults {
  static constexpr int reads[] = {kC, kC, kA | kB};
  template <class V>
  FIRN_HD static V f(V a, V b, V c, Args) {
    return where(abs(c) < V(0.5), a + c * (b - a), b - (b - a) * (V(1) - c));
  }
  template <int operand, class V>
  FIRN_HD static V df(V dy, V a, V b, V c, Args) {
    return operand == 0 ? dy * (V(1) - c) : operand == 1 ? dy * c : dy * (b - a);
  }
};

/// a + value b c; p.a: value.
struct AddCMul : TernaryDefaults {
  static constexpr bool integers = true;
  static constexpr int reads[] = {kNeither, kC, kB};
  static constexpr int passes = kA;
  template <class V>
  FIRN_HD static V f(V a, V b, V c, Args p) {
    return a + V(p.a) * b * c;
  }
  template <int operand, class V>
  FIRN_HD static V df(V dy, V, V b, V c, Args p) {
    return operand == 0 ? dy : dy * V(p.a) * (operand == 1 ? c : b);
  }
};

/// min(max(a, b), c); NaN wins. As in PyTorch c has priority over b. At a bound the bound has the
/// gradient, so that the derivative by a is that of Clamp. a takes all if an operand is NaN.
struct ClampBetween : TernaryDefaults {
  static constexpr bool integers = true;
  static constexpr int reads[] = {kA | kB | kC, kA | kB | kC, kA | kB | kC};
  template <class V>
  FIRN_HD static V f(V a, V b, V c, Args p) {
    return Minimum::f(Maximum::f(a, b, p), c, p);
  }
  template <int operand, class V>
  FIRN_HD static V df(V dy, V a, V b, V c, Args) {
    const V zero(0);
    if constexpr (operand == 0) {
      return where(a <= b, zero, where(a >= c, zero, where(b > c, zero, dy)));
    } else if constexpr (operand == 1) {
      return where(b > c, zero, where(a >= c, zero, where(a <= b, dy, zero)));
    } else {
      return where(b > c, dy, where(a >= c, dy, zero));
    }
  }
};

// ---- The list ----
// clang-format off
#define FIRN_TERNARY_OPS(EACH) \
  EACH(lerp, Lerp)             \
  EACH(addcmul, AddCMul)       \
  EACH(clamp_between, ClampBetween)

enum class TernaryOp : unsigned char {
#define FIRN_ENUMERATOR(name, Op) name,
  FIRN_TERNARY_OPS(FIRN_ENUMERATOR)
#undef FIRN_ENUMERATOR
};

struct TernaryInfo {
  TernaryOp op;
  const char* name;
  Autocast autocast;
  bool floats;
  bool integers;
  bool gives_bool;
  int reads[3];
  int passes;
};

/// Facts about the operations in the order of the enum: kTernaryOps[int(op)].
inline constexpr TernaryInfo kTernaryOps[] = {
#define FIRN_INFO(name, Op)                                                            \
  {TernaryOp::name, #name,          Op::autocast,                                     \
   Op::floats,      Op::integers,   Op::gives_bool,                                   \
   {Op::reads[0], Op::reads[1], Op::reads[2]}, Op::passes},
  FIRN_TERNARY_OPS(FIRN_INFO)
#undef FIRN_INFO
};
// clang-format on
constexpr const TernaryInfo& info(TernaryOp op) { return kTernaryOps[static_cast<int>(op)]; }

}  // namespace firn::math
