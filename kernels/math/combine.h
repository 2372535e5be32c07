// Combination of two elements: of ranks on the CPU (src/dist/combine.h) and on CUDA devices
// (kernels/combine.h), and of elements with one target (kernels/index.h). Both backends give the
// same bits, except for those of a NaN.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/math/macros.h"

namespace firn::math {

/// a + b; integers wrap around.
template <class T>
FIRN_HD constexpr T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

/// a * b; integers wrap around.
template <class T>
FIRN_HD constexpr T wrapping_product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

/// A NaN in a stays, since a != a; a NaN in b fails the comparison, and is taken.
template <class T>
FIRN_HD constexpr T larger_or_nan(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
FIRN_HD constexpr T smaller_or_nan(T a, T b) {
  return a < b || a != a ? a : b;
}

}  // namespace firn::math
