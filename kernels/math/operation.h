// Common part of the formulas of all elementwise operations: their parameters, the properties that
// a struct declares, and functions that several of them use.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// Scalar parameters of an op.
struct Args {
  double a = 0;
  double b = 0;
  double c = 0;
};

enum class Saves : unsigned char { none, input, output };

/// lower: run in the autocast dtype. fp32: cast 16-bit operands up first. promote: run in the
/// widest dtype among the operands. keep: run in the operand's own dtype.
enum class Autocast : unsigned char { lower, fp32, promote, keep };

/// Defaults of the structs of all families.
struct OperationDefaults {
  static constexpr bool floats = true;       ///< takes floating dtypes
  static constexpr bool integers = false;    ///< takes i32, i64 and u8
  static constexpr bool gives_bool = false;  ///< the result is bool, without a gradient
};

/// True if a formula of the gradient belongs to the op.
template <class Op>
inline constexpr bool kHasGradient = Op::floats && !Op::gives_bool;

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

/// 1 where x is zero, else 0: the bool of !x.
template <class V>
FIRN_HD V is_zero(V x) {
  return where(x == V(0), V(1), V(0));
}

}  // namespace firn::math
