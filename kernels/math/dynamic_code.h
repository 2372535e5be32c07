// Optimizer states in 8 bits: blocks of 256 elements, each element a byte of a dynamic code, times
// the largest magnitude of its block.
//
// The code is the dynamic tree code of 8-bit optimizers (Dettmers, Lewis, Shleifer & Zettlemoyer,
// 2022, sections 1.3 and 2.1; the values are those of bitsandbytes' create_dynamic_map): seven
// decades from 1e-6 to 1, each with twice the steps of the one below. With q = n + k, n the steps
// of decade i (0 to 6) and 0 <= k < n:
//   value(q) = 10^(i-6) (0.1 + 0.9 (k + 1/2) / n)
// Beside these there are 0 and 1.
//   signed    n = 2^i      the byte is q, or 256 - q for its negative; 128 is the value 1
//   unsigned  n = 2^(i+1)  the byte is q; 1 is the value 1
// Byte 0 is the value 0, so memory of zeros holds zeros. A value has the same bits wherever it is
// computed: it is rounded once, by an explicit fma().
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// Elements that share a scale.
inline constexpr int kStateBlock = 256;

/// The scale of a block, and what its elements are multiplied by before they are encoded. Scales
/// are limited to [2^-126, 2^126], so that neither number is subnormal; a block of smaller numbers
/// is 0.
struct BlockScale {
  float scale, inverse;
};
FIRN_HD inline BlockScale block_scale(float largest) {
  if (!(largest >= 0x1p-126f)) return {0, 0};
  const float scale = largest < 0x1p126f ? largest : 0x1p126f;
  return {scale, 1 / scale};
}

/// A number for each exponent, modulo 8.
struct ByExponent {
  float of[8];
};
/// That of x >= 0. Selects, since an index would need memory.
FIRN_HD inline float by_exponent(const ByExponent& t, float x) {
  const std::uint32_t e = __builtin_bit_cast(std::uint32_t, x) >> 23;
  const bool b0 = (e & 1) != 0, b1 = (e & 2) != 0, b2 = (e & 4) != 0;
  const float low = b1 ? (b0 ? t.of[3] : t.of[2]) : (b0 ? t.of[1] : t.of[0]);
  const float high = b1 ? (b0 ? t.of[7] : t.of[6]) : (b0 ? t.of[5] : t.of[4]);
  return b2 ? high : low;
}
/// The power of two at x >= 0 or below it; 0 for 0.
FIRN_HD inline float power_below(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7f800000u);
}
/// A float with the bits slope bits(x) + shift. The bits of a float are a logarithm that is linear
/// between powers of two, so this is near a power of x.
FIRN_HD inline float rough_power(float x, float slope, float shift) {
  const auto bits = static_cast<float>(__builtin_bit_cast(std::int32_t, x));
  return __builtin_bit_cast(float, static_cast<std::int32_t>(bits * slope + shift));
}

template <bool kSigned>
struct DynamicCode {
  /// The value of a byte, which V holds as an integer: signed ones as -128 to 127.
  template <class V>
  FIRN_HD static V decode(V byte) {
    constexpr ByExponent starts = decode_starts(), sizes = decode_sizes();
    const V q = abs(byte), n = power_below(q);
    const V value = fma(by_exponent(sizes, n), q - n, by_exponent(starts, n) * n);
    if constexpr (!kSigned) return value;
    return where(byte < V(0), -value, value);
  }

  /// The byte of the value nearest to x, as the low 8 bits of what V holds if that is truncated to
  /// an integer; 1 stands for all beyond it. An unsigned number above 0 never becomes 0: a second
  /// moment of 0 would divide by eps alone.
  template <class V>
  FIRN_HD static V encode(V x) {
    constexpr ByExponent borders = encode_borders(), slopes = encode_slopes();
    const V a = min(V(1), abs(x));
    // The steps of a's decade, or of the one below; then of its own. 1 is the first of an eighth.
    const V low = power_below(rough_power(max(a, V(kLowest)), kLog10Of2, kShift));
    const V n = where(a >= by_exponent(borders, low), low + low, low);
    // n (1 + (a / 10^(i-6) - 0.1) / 0.9) lies between q and q + 1.
    const V q = min(a * by_exponent(slopes, n) + n * V(8.f / 9.f), n + (n - V(1)));
    if constexpr (kSigned) {
      return max(where(x < V(0), -q, q), V(-127));  // -1 is not in the code
    } else {
      return where(x > V(0), where(q < V(256), max(q, V(2)), V(1)), V(0));
    }
  }

 private:
  static constexpr int kFewest = kSigned ? 1 : 2;  ///< steps of the lowest decade
  static constexpr int kTop = 128 * kFewest;       ///< q of the value 1 in encode()

  // ---- Of decade i; 7 is that of the value 1 ----

  FIRN_HD static constexpr double power(int i) {
    double out = 1e-6;
    for (; i > 0; --i) out *= 10;
    return out;
  }
  FIRN_HD static constexpr double step(int i) { return power(i) * 0.9 / (kFewest << i); }
  FIRN_HD static constexpr double first(int i) {
    return i == 7 ? 1.0 : power(i) * 0.1 + step(i) / 2;
  }
  FIRN_HD static constexpr double last(int i) { return first(i) + ((kFewest << i) - 1) * step(i); }
  /// Between the last value below decade i and its first one.
  FIRN_HD static constexpr double border(int i) {
    return ((i == 0 ? 0.0 : last(i - 1)) + first(i)) / 2;
  }
  /// The place of decade i's numbers in a table.
  FIRN_HD static constexpr int place(int i) { return (127 + i + (kSigned ? 0 : 1)) % 8; }

  // ---- The tables ----

  FIRN_HD static constexpr ByExponent decode_sizes() {
    ByExponent out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(step(i));
    return out;  // 0 for the value 1
  }
  FIRN_HD static constexpr ByExponent decode_starts() {
    ByExponent out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(first(i) / (kFewest << i));
    // Signed: the byte is -128, so its value is negated once more. Unsigned: the byte is 1.
    out.of[place(7)] = kSigned ? -1.f / 128 : 1.f;
    return out;
  }
  FIRN_HD static constexpr ByExponent encode_borders() {
    ByExponent out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(border(i + 1));
    out.of[place(7)] = 2;
    return out;
  }
  FIRN_HD static constexpr ByExponent encode_slopes() {
    ByExponent out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(1 / step(i));
    // Signed, the lowest decade has one step: numbers from border(0) on get it.
    if (kSigned) out.of[place(0)] = static_cast<float>(1 / (9 * border(0)));
    out.of[place(7)] = kTop * 0.1125f;  // 1/9 and a little: from border(7) on it comes to kTop
    return out;
  }

  static constexpr float kLog10Of2 = 0.30103f;
  /// rough_power() is then n or n / 2: at the border below decade i, log10(a) + 6.4 as it takes the
  /// logarithm is between i - 0.7 and i - 0.3. From kLowest on it is at least kFewest.
  static constexpr float kShift =
      8388608.f * (127 * (1 - kLog10Of2) + 6.4f + (kSigned ? 0.f : 1.f));
  static constexpr float kLowest = 4.5e-7f;
};

/// A rule whose states are kept in 8 bits. Updates are computed in f32, from the decoded states and
/// with the new ones before they are encoded. `Rule` says by state_is_signed(i) which code state i
/// has.
template <class Rule>
struct EightBit : Rule {};

template <class Rule>
inline constexpr bool kIsEightBit = false;
template <class Rule>
inline constexpr bool kIsEightBit<EightBit<Rule>> = true;

}  // namespace firn::math
