// Optimizer states in 8 bits: blocks of 256 elements, each element a byte of a dynamic code, times
// the largest magnitude of its block.
//
// The code is the dynamic tree code of 8-bit optimizers (Dettmers, Lewis, Shleifer & Zettlemoyer,
// 2022, sections 1.3 and 2.1; the values are those of bitsandbytes' create_dynamic_map): seven
// decades from 1e-6 to 1, each with twice the steps of the one below. With q = n + k, n the steps
// of decade i (0 to 6) and 0 <= k < n:
//   value(q) = 10^(i-6) (0.1 + 0.9 (k + 1/2) / n)
// 0 and 1 are values too.
//   signed    n = 2^i      the byte is q, or 256 - q for its negative; 128 is the value 1
//   unsigned  n = 2^(i+1)  the byte is q; 1 is the value 1
// Byte 0 is the value 0, so memory of zeros holds zeros. A value has the same bits wherever it is
// computed: no product is added to anything, so there is nothing to contract.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// Elements that share a scale.
inline constexpr int kStateBlock = 256;

/// Scale of a block, and factor of its elements before they are encoded. Scales are limited to
/// [2^-126, 2^126], so that neither number is subnormal; a block of smaller numbers is 0.
struct BlockScale {
  float scale, inverse;
};
FIRN_HD inline BlockScale block_scale(float largest) {
  if (!(largest >= 0x1p-126f)) return {0, 0};
  const float scale = largest < 0x1p126f ? largest : 0x1p126f;
  return {scale, 1 / scale};
}

/// Eight numbers: one for each decade, and one for the value 1.
struct ByDecade {
  float of[8];
};
/// Returns the entry at `bits` modulo 8. It selects, since an index would need memory.
FIRN_HD inline float entry(const ByDecade& t, std::uint32_t bits) {
  const bool b0 = (bits & 1) != 0, b1 = (bits & 2) != 0, b2 = (bits & 4) != 0;
  const float low = b1 ? (b0 ? t.of[3] : t.of[2]) : (b0 ? t.of[1] : t.of[0]);
  const float high = b1 ? (b0 ? t.of[7] : t.of[6]) : (b0 ? t.of[5] : t.of[4]);
  return b2 ? high : low;
}
/// Returns the entry at the exponent of x.
FIRN_HD inline float by_exponent(const ByDecade& t, float x) {
  return entry(t, __builtin_bit_cast(std::uint32_t, x) >> 23);
}
/// Returns q >= 0 with the sign of x.
FIRN_HD inline float signed_as(float q, float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, q) |
                                       (__builtin_bit_cast(std::uint32_t, x) & 0x80000000u));
}

// An integer below 2^22 is held as 1.5 * 2^23 + itself: adding 1 to that adds 1 to it, a sum
// of floats rounds to it, and it is in the lowest bits.
/// The integer nearest to slope bits(x) + `held`, in the same form as `held`. The bits of a float
/// are a logarithm that is linear between powers of two, so this is near one of x.
FIRN_HD inline float rough_log(float x, float slope, float held) {
  return static_cast<float>(__builtin_bit_cast(std::int32_t, x)) * slope + held;
}
/// The entry at a held integer.
FIRN_HD inline float by_held(const ByDecade& t, float held) {
  return entry(t, __builtin_bit_cast(std::uint32_t, held));
}
/// The held integer, and 1 more if `more`.
FIRN_HD inline float next_if(bool more, float held) { return more ? held + 1 : held; }
/// c 2^(h - 127) of a held integer h from 1 to 254, with 1 <= c < 2.
FIRN_HD inline float power_of_held(float held, float c) {
  return __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, held) << 23) +
                                       (__builtin_bit_cast(std::uint32_t, c) & 0x7fffffu));
}

template <bool kSigned>
struct DynamicCode {
  /// The value of a byte, which V holds as an integer: signed ones as -128 to 127.
  template <class V>
  FIRN_HD static V decode(V byte) {
    constexpr ByDecade sizes = decode_sizes(), origins = decode_origins();
    const V q = byte * V(kSpread);
    V origin = by_exponent(origins, q);
    if constexpr (kSigned) origin = signed_as(origin, q);
    return (q - origin) * by_exponent(sizes, q);
  }

  /// The byte of the value nearest to x, as the low 8 bits of what V holds if that is truncated to
  /// an integer; 1 stands for all beyond it. An unsigned number above 0 never becomes 0: a second
  /// moment of 0 would divide by eps alone.
  template <class V>
  FIRN_HD static V encode(V x) {
    const V q = steps(min(V(1), abs(x)));
    if constexpr (kSigned) {
      return max(signed_as(q, x), V(-127));  // -1 is not in the code
    } else {
      return where(x > V(0), max(q, V(2)), V(0));
    }
  }

  /// q of the value nearest to `a`, and a part below 1; 0 <= a <= 1, or a little more by rounding.
  /// For 0 it is less than 1; for the unsigned value 1 it is 257, whose low 8 bits are 1.
  template <class V>
  FIRN_HD static V steps(V a) {
    constexpr ByDecade borders = encode_borders(), slopes = encode_slopes();
    // a's decade, or the one below; then its own. 1 is the first of an eighth. Numbers below the
    // lowest decade get a power that is as much too small.
    const V low = rough_log(a, kSlope, kHeld);
    const V decade = next_if(a >= by_held(borders, low), low);
    // n (1 + (a / 10^(i-6) - 0.1) / 0.9) lies between q and q + 1; at 0 it is 8/9 n.
    const V at_zero = power_of_held(decade, 16.f / 9.f);
    return min(a * by_held(slopes, decade) + at_zero, V(2.25f) * at_zero - V(0.9f));
  }

 private:
  static constexpr int kFewest = kSigned ? 1 : 2;     ///< steps of the lowest decade
  static constexpr float kTop = kSigned ? 128 : 257;  ///< q of the value 1 in encode(): its byte

  // ---- Decade i; 7 is the decade of the value 1 ----

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
  /// The place of decade i's numbers in a table of encode().
  FIRN_HD static constexpr int place(int i) { return (126 + i + (kSigned ? 0 : 1)) % 8; }

  /// Factor of bytes in decode(). Those of decade i then have the exponent 129 + i, and those of
  /// the values 0 and 1 are 0 or 8 in the lowest four bits: they share an entry, with the origin 0.
  static constexpr int kSpread = kSigned ? 4 : 2;
  FIRN_HD static constexpr int decode_place(int i) { return (129 + i) % 8; }

  // ---- The tables ----

  // value(q) = (q - origin) size
  FIRN_HD static constexpr ByDecade decode_sizes() {
    ByDecade out{};
    for (int i = 0; i < 7; ++i) out.of[decode_place(i)] = static_cast<float>(step(i) / kSpread);
    // Signed: the byte is -128. Unsigned: it is 1.
    out.of[0] = (kSigned ? -1.f / 128 : 1.f) / kSpread;
    if (kSigned)
      out.of[decode_place(0)] = static_cast<float>(first(0) / kSpread);  // its only value
    return out;
  }
  FIRN_HD static constexpr ByDecade decode_origins() {
    ByDecade out{};
    for (int i = kSigned ? 1 : 0; i < 7; ++i)
      out.of[decode_place(i)] = static_cast<float>((kFewest << i) * 8. / 9 - 0.5) * kSpread;
    return out;
  }
  FIRN_HD static constexpr ByDecade encode_borders() {
    ByDecade out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(border(i + 1));
    out.of[place(7)] = 2;
    return out;
  }
  FIRN_HD static constexpr ByDecade encode_slopes() {
    ByDecade out{};
    for (int i = 0; i < 7; ++i) out.of[place(i)] = static_cast<float>(1 / step(i));
    // Signed, the lowest decade has one step: numbers from border(0) on get it.
    if (kSigned) out.of[place(0)] = static_cast<float>(1 / (9 * border(0)));
    // From border(7) on, q is kTop and a part.
    out.of[place(7)] = kTop + 0.5f - 128 * kFewest * (8.f / 9.f);
    return out;
  }

  // rough_log() is 126 + i and, unsigned, 1 more; or 1 less than that. At the borders, what it
  // rounds is 0.1 or more away from where the result changes. kHeld is an integer, so the slope is
  // not quite log10(2).
  static constexpr float kSlope = (kSigned ? 0.2815f : 0.2902f) / 8388608.f;
  static constexpr float kHeld = 12582912.f + 96;
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
