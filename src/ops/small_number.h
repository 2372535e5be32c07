// Options that are small numbers, checked in the type that computes with them.
#pragma once

#include <cmath>
#include <limits>

#include "base/check.h"
#include "firn/dtype.h"

namespace firn::ops {

/// Throws Error, naming `op` and the option, if `value` is not 0, but 0 for tensors of `dtype`. All
/// but f64 ones are computed in f32, in which subnormal numbers are 0. So are those of f64 in f64.
inline void require_seen(const char* op, const char* name, double value, DType dtype) {
  const bool wide = dtype == DType::f64;
  const double least = wide ? std::numeric_limits<double>::min()
                            : static_cast<double>(std::numeric_limits<float>::min());
  FIRN_CHECK(value == 0 || !(std::abs(value) < least), op,
             wide ? "give 0 or a larger number" : "give 0, a larger number, or f64 tensors",
             "{} = {} is 0 in the arithmetic of {} tensors", name, value, dtype);
}

}  // namespace firn::ops
