// Stochastic rounding of f32 to the 16-bit floating types: up with a probability equal to the
// distance from the lower neighbour, so that the expected value is the number itself.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/macros.h"

namespace firn::math {

/// x rounded to a number that bf16 holds; `word` is uniform in 32 bits, of which 16 are used.
FIRN_HD inline float round_stochastic_bf16(float x, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;  // Inf and NaN
  if ((bits & 0x7fffffffu) > 0x7f7f0000u) return x;   // past the largest
  return std::bit_cast<float>((bits + (word >> 16)) & 0xffff0000u);
}

/// The same for f16, whose numbers are 2^-24 apart below 2^-14.
FIRN_HD inline float round_stochastic_f16(float x, std::uint32_t word) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x477fe000u) return x;  // past 65504: left to the nearest rounding, or not finite
  if (magnitude >= 0x38800000u) return std::bit_cast<float>((bits + (word >> 19)) & 0xffffe000u);
  const float u = static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
  const float steps = floorf(fabsf(x) * 0x1p24f + u);
  return copysignf(steps * 0x1p-24f, x);
}

}  // namespace firn::math
