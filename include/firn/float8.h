// The two floating-point types of 8 bits that the Open Compute Project defines (OCP 8-bit Floating
// Point Specification, 2023), with conversions that round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace firn {

/// A sign, 7 - kFraction exponent bits and kFraction fraction bits. With infinities the layout is
/// that of IEEE 754. Without, the largest exponent holds numbers too, and NaN has all bits set.
template <int kFraction, bool kHasInfinity>
struct Float8 {
  std::uint8_t bits = 0;  ///< sign, exponent and fraction, from the highest bit down

  constexpr Float8() = default;
  /// Rounds `f`. A result beyond the largest number is infinite, or NaN if there is no infinity.
  constexpr explicit Float8(float f) : bits(from_float(f)) {}
  /// Converts exactly: every value is a float.
  constexpr operator float() const { return to_float(bits); }  // NOLINT: widening is exact
  /// The number with these bits.
  static constexpr Float8 from_bits(std::uint8_t b) {
    Float8 x;
    x.bits = b;
    return x;
  }

 private:
  static constexpr std::uint32_t kBias = (1u << (6 - kFraction)) - 1;
  static constexpr std::uint32_t kNaN = kHasInfinity ? 0x7eu : 0x7fu;
  static constexpr std::uint32_t kInfinity = 0x80u - (1u << kFraction);
  static constexpr std::uint32_t kPast = kHasInfinity ? kInfinity : kNaN;  ///< largest code plus 1
  static constexpr int kLost = 23 - kFraction;  ///< bits by which a float's fraction is longer
  /// The float whose last bit is worth the smallest number, 2^(1 - kBias - kFraction).
  static constexpr std::uint32_t kAligned = (127 + 1 - kBias + kLost) << 23;

  static constexpr std::uint8_t from_float(float f) {
    const std::uint32_t x = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (x >> 24) & 0x80u, magnitude = x & 0x7fffffffu;
    std::uint32_t code = 0;
    if (magnitude > 0x7f800000u) {
      code = kNaN;
    } else if (magnitude < (127 + 1 - kBias) << 23) {  // subnormal or zero: the addition rounds
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligned);
      code = std::bit_cast<std::uint32_t>(sum) - kAligned;
    } else {
      const std::uint32_t odd = (magnitude >> kLost) & 1u;
      code = (magnitude - ((127 - kBias) << 23) + (1u << (kLost - 1)) - 1 + odd) >> kLost;
      if (code >= kPast) code = kPast;
    }
    return static_cast<std::uint8_t>(sign | code);
  }
  static constexpr float to_float(std::uint8_t b) {
    const std::uint32_t sign = (b & 0x80u) << 24, code = b & 0x7fu;
    std::uint32_t magnitude = 0;
    if (code > (kHasInfinity ? kInfinity : kNaN - 1)) {
      magnitude = 0x7fc00000u;
    } else if (kHasInfinity && code == kInfinity) {
      magnitude = 0x7f800000u;
    } else if (code >> kFraction == 0) {  // code * 2^(1 - kBias - kFraction), exact
      const float unit = std::bit_cast<float>((127 + 1 - kBias - kFraction) << 23);
      magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(code) * unit);
    } else {
      magnitude = (code << kLost) + ((127 - kBias) << 23);
    }
    return std::bit_cast<float>(sign | magnitude);
  }
};

/// 4 exponent and 3 fraction bits, no infinity; largest number 448, smallest normal 2^-6, smallest
/// subnormal 2^-9. Other libraries call it e4m3fn.
using float8_e4m3 = Float8<3, false>;
/// 5 exponent and 2 fraction bits; largest finite number 57344, smallest normal 2^-14, smallest
/// subnormal 2^-16.
using float8_e5m2 = Float8<2, true>;

}  // namespace firn
