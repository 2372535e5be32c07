// Elements as unsigned keys that compare as the elements do, so that sorting compares integers
// alone. Floats are ordered as by PyTorch: -inf, ..., -0 = 0, ..., inf, NaN, and all NaNs are
// equal. Subnormal numbers keep their places, whatever the mode of the CPU is.
#pragma once

#include <cstdint>

#include "firn/dtype.h"
#include "kernels/math/macros.h"

namespace firn::math {

/// The keys of a dtype whose elements have the size of U, an unsigned integer.
template <class U>
struct OrderKey {
  U sign;      ///< the bit of the sign; 0 for unsigned integers
  U infinity;  ///< the bits of infinity; 0 for integers
  U flip;      ///< all bits, to turn the order around; else 0

  OrderKey(DType dtype, bool descending)
      : sign(dtype == DType::u8 || dtype == DType::boolean ? U(0)
                                                           : static_cast<U>(U(1) << (kBits - 1))),
        infinity(static_cast<U>(infinity_of(dtype))),
        flip(descending ? static_cast<U>(~U(0)) : U(0)) {}

  FIRN_HD U operator()(U bits) const {
    U key = static_cast<U>(bits ^ sign);
    if (infinity != 0) {
      const U size = static_cast<U>(bits & ~sign);
      if (size > infinity) {
        key = static_cast<U>(~U(0));
      } else if (size == 0) {
        key = sign;
      } else if (size != bits) {
        key = static_cast<U>(~bits);
      }
    }
    return static_cast<U>(key ^ flip);
  }

 private:
  static constexpr int kBits = 8 * static_cast<int>(sizeof(U));
  static std::uint64_t infinity_of(DType dtype) {
    switch (dtype) {
      case DType::f16:
        return 0x7c00;
      case DType::bf16:
        return 0x7f80;
      case DType::f32:
        return 0x7f800000;
      case DType::f64:
        return 0x7ff0000000000000;
      default:
        return 0;
    }
  }
};

/// Number of `count` ascending elements before a key: less than it or, with `after`, equal.
template <class U>
FIRN_HD std::int64_t place_of(U own, const U* sorted, std::int64_t count, const OrderKey<U>& key,
                              bool after) {
  std::int64_t low = 0;
  while (count > 0) {
    const std::int64_t half = count / 2;
    const U middle = key(sorted[low + half]);
    const bool above = middle < own || (after && middle == own);
    low = above ? low + half + 1 : low;
    count = above ? count - half - 1 : half;
  }
  return low;
}

/// The bin of x among ascending edges [bins + 1]; `bins` if it is in none.
template <class T>
FIRN_HD std::int64_t bin_of(T x, const T* edges, std::int64_t bins) {
  if (!(x >= edges[0] && x <= edges[bins])) return bins;
  std::int64_t low = 0, high = bins;  // edges[low] <= x, and x < edges[high] or high is the last
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    const bool above = x >= edges[middle];
    low = above ? middle : low;
    high = above ? high : middle;
  }
  return low;
}

}  // namespace firn::math
