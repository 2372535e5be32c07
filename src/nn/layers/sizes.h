// Sizes along axes and dtypes of parameters, as layers print and check them.
#pragma once

#include <string>

#include "base/check.h"
#include "firn/ops/conv.h"

namespace firn::nn {

/// "3 x 2", or one number if both are equal.
inline std::string text(Size2 e) {
  return e.h == e.w ? fmt::format("{}", e.h) : fmt::format("{} x {}", e.h, e.w);
}
/// "4 x 3 x 2", or one number if all are equal.
inline std::string text(Size3 e) {
  return e.d == e.h && e.h == e.w ? fmt::format("{}", e.d)
                                  : fmt::format("{} x {} x {}", e.d, e.h, e.w);
}

/// Throws Error naming the layer and the argument `what` unless all numbers are positive.
inline void check_positive(const char* layer, const char* what, Size2 e) {
  FIRN_CHECK(e.h > 0 && e.w > 0, layer, "sizes count positions from 1",
             "{} = {} x {} must be positive", what, e.h, e.w);
}
inline void check_positive(const char* layer, const char* what, Size3 e) {
  FIRN_CHECK(e.d > 0 && e.h > 0 && e.w > 0, layer, "sizes count positions from 1",
             "{} = {} x {} x {} must be positive", what, e.d, e.h, e.w);
}

/// Throws Error naming the layer unless its parameters can have this dtype.
inline void check_dtype(const char* layer, DType dtype) {
  FIRN_CHECK(is_floating(dtype), layer, "f32, f16, bf16 or f64",
             "parameters have gradients, and dtype = {} has none", dtype);
}

/// Throws Error naming the layer if eps is negative or not a number.
inline void check_eps(const char* layer, double eps) {
  FIRN_CHECK(eps >= 0, layer, "a small number such as 1e-5 keeps the division finite",
             "eps = {} must not be negative", eps);
}

}  // namespace firn::nn
