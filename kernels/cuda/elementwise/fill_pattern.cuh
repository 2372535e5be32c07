// A number as bytes, for kernels that write bits.
#pragma once

#include <cstring>
#include <type_traits>

#include "firn/dtype.h"
#include "kernels/math/integer.h"
#include "kernels/math/rounding.h"

namespace firn::kernels::cuda {

/// 16 bytes of elements that hold `value`, converted as by the copy kernel.
struct Pattern {
  alignas(16) unsigned char bytes[16];

  Pattern(double value, DType dtype) {
    visit(dtype, [&]<class T>() {
      T element;
      if constexpr (std::is_same_v<T, bool>) {
        element = value != 0;
      } else if constexpr (std::is_integral_v<T>) {
        element = math::to_integer<T>(value);
      } else if constexpr (std::is_floating_point_v<T>) {
        element = static_cast<T>(value);
      } else {
        element = T(math::round_to_odd(value));
      }
      for (std::size_t i = 0; i < sizeof bytes; i += sizeof(T)) {
        std::memcpy(bytes + i, &element, sizeof(T));
      }
    });
  }
  /// Returns it as one value of a type of 16 bytes or fewer.
  template <class T>
  T as() const {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  bool zero() const {
    for (const unsigned char b : bytes) {
      if (b != 0) return false;
    }
    return true;
  }
};

}  // namespace firn::kernels::cuda
