// Rounding modes that hardware lacks: to odd, and stochastic.
#pragma once

#include <cstdint>

#include "kernels/math/macros.h"

namespace firn::math {

// ---- To odd: the way to 16 bits through a wider type that rounds twice but counts as once ----

/// d rounded to float so that a second rounding, to 16 bits, gives the result of a single one. d is
/// truncated, and the last bit is set if any bit was lost.
FIRN_HD inline float round_to_odd(double d) {
  const float nearest = static_cast<float>(d);
  const double back = nearest;
  if (back == d || d != d) return nearest;
  auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  if (abs(back) > abs(d)) --bits;
  return __builtin_bit_cast(float, bits | 1u);
}

/// v as a double that rounds to 16 bits as v does. From 2^53 on, a sticky bit replaces the low 11
/// bits.
FIRN_HD inline double round_to_odd(std::int64_t v) {
  const std::uint64_t u = v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v);
  if (u < (std::uint64_t{1} << 53)) return static_cast<double>(v);
  const double d = static_cast<double>(((u >> 11) | ((u & 0x7ffu) != 0 ? 1u : 0u)) << 11);
  return v < 0 ? -d : d;
}

// ---- Stochastic: f32 to the 16-bit floating types ----
// Rounds away from zero with a probability equal to the distance from the neighbour towards zero,
// in ulp. So the expected value is the number itself. Takes the bits of an f32 and a `word` that is
// uniform in 32 bits; returns the bits of the 16-bit number. Numbers past the largest finite one
// round to the nearest of that and infinity. NaN stays NaN.

FIRN_HD inline std::uint16_t round_stochastic_bf16(std::uint32_t bits, std::uint32_t word) {
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  const std::uint32_t up = magnitude > 0x7f7f0000u ? 0x8000u : word >> 16;
  return static_cast<std::uint16_t>((bits + (magnitude == 0x7f800000u ? 0u : up)) >> 16);
}

FIRN_HD inline std::uint16_t round_stochastic_f16(std::uint32_t bits, std::uint32_t word) {
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t out = 0;
  if (magnitude > 0x477fe000u) {  // past 65504
    out = magnitude > 0x7f800000u ? 0x7e00u : magnitude >= 0x477ff000u ? 0x7c00u : 0x7bffu;
  } else if (magnitude >= 0x38800000u) {  // normal: 13 bits are lost
    out = ((magnitude + (word >> 19)) >> 13) - (112u << 10);
  } else {  // steps of 2^-24: the number is fraction * 2^-lost of them
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t fraction = exponent == 0 ? magnitude : (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t lost = 126u - (exponent == 0 ? 1u : exponent);  // 14 or more
    if (lost < 32u) {
      out = (fraction >> lost) +
            ((word >> (32u - lost)) < (fraction & ((1u << lost) - 1u)) ? 1u : 0u);
    } else {
      out = lost < 64u && word < (fraction >> (lost - 32u)) ? 1u : 0u;
    }
  }
  return static_cast<std::uint16_t>(sign | out);
}

}  // namespace firn::math
