// The bounds of uniform numbers in the dtype that stores them, for every backend.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "firn/half.h"

namespace firn::kernels {

/// The ends of [low, high) in T: the smallest number that is >= low, the largest that is < high.
template <class T>
class UniformRange {
 public:
  UniformRange(double low, double high) {
    const double low_t = stored(low), high_t = stored(high);
    least = low_t >= low ? low_t : neighbour(low_t, true);
    most = high_t < high ? high_t : neighbour(high_t, false);
  }

  double least;
  double most;

 private:
  static constexpr bool kNative = std::is_same_v<T, float> || std::is_same_v<T, double>;

  static double stored(double v) {
    if constexpr (kNative) {
      return static_cast<T>(v);
    } else {
      return static_cast<float>(T(static_cast<float>(v)));
    }
  }
  /// Returns the T next to a finite `v`: above it if `up`, else below.
  static double neighbour(double v, bool up) {
    if constexpr (kNative) {
      const T inf = std::numeric_limits<T>::infinity();
      return std::nextafter(static_cast<T>(v), up ? inf : -inf);
    } else {  // 16 bits: magnitude order is bit order
      const T t(static_cast<float>(v));
      if ((t.bits & 0x7fffu) == 0) {
        return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(up ? 1 : 0x8001u)));
      }
      const bool away = (t.bits < 0x8000u) == up;
      return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(t.bits + (away ? 1 : -1))));
    }
  }
};

}  // namespace firn::kernels
