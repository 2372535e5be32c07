// The two 16-bit floating-point storage types, with conversions that round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace firn {

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; largest finite value 65504, smallest
/// normal 2^-14, smallest subnormal 2^-24.
struct half {
  std::uint16_t bits = 0;  ///< sign, exponent and fraction, from the highest bit down

  constexpr half() = default;
  constexpr explicit half(float f) : bits(from_float(f)) {}
  /// Converts exactly: every value is a float.
  constexpr operator float() const { return to_float(bits); }  // NOLINT: widening is exact
  /// The number with these bits.
  static constexpr half from_bits(std::uint16_t b) {
    half h;
    h.bits = b;
    return h;
  }

 private:
  static constexpr std::uint16_t from_float(float f) {
    const std::uint32_t x = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (x >> 16) & 0x8000u;
    const std::uint32_t mag = x & 0x7fffffffu;
    if (mag > 0x7f800000u)
      return static_cast<std::uint16_t>(sign | 0x7e00u | ((mag >> 13) & 0x1ffu));
    if (mag >= 0x477ff000u)
      return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
    if (mag < 0x38800000u) {  // subnormal or zero: adding 0.5 leaves the rounded fraction in place
      const float shifted = std::bit_cast<float>(mag) + 0.5f;
      return static_cast<std::uint16_t>(sign |
                                        (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t odd = (mag >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13));
  }
  static constexpr float to_float(std::uint16_t h) {
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 0x1fu;
    const std::uint32_t fraction = h & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in f32
      const float f = static_cast<float>(fraction) * 5.9604644775390625e-8f;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(f) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
};

/// bfloat16: the upper half of a binary32: 8 exponent and 7 fraction bits.
struct bfloat16 {
  std::uint16_t bits = 0;  ///< sign, exponent and fraction, from the highest bit down

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float f) : bits(from_float(f)) {}
  /// Converts exactly: every value is a float.
  constexpr operator float() const {  // NOLINT: widening is exact
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  /// The number with these bits.
  static constexpr bfloat16 from_bits(std::uint16_t b) {
    bfloat16 h;
    h.bits = b;
    return h;
  }

 private:
  static constexpr std::uint16_t from_float(float f) {
    const std::uint32_t x = std::bit_cast<std::uint32_t>(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((x >> 16) | 0x40u);
    return static_cast<std::uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
  }
};

}  // namespace firn
