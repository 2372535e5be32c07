// Random numbers: the Philox4x32-10 block function (Salmon, Moraes, Dror & Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC'11), and the conversion of a 32-bit word to a number. All
// backends use it: the same seed gives the same words everywhere.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// The four words of one block.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// Returns word[i % 4] by choices: an array that is indexed lies in a GPU's local memory.
FIRN_HD inline std::uint32_t word_of(const PhiloxBlock& b, std::int64_t i) {
  const std::uint32_t even = i & 2 ? b.word[2] : b.word[0], odd = i & 2 ? b.word[3] : b.word[1];
  return i & 1 ? odd : even;
}

inline constexpr std::uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKey0 = 0x9E3779B9u, kPhiloxKey1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

/// One of the ten rounds, on one block's counter (c0..c3) with the round's key (k0, k1).
FIRN_HD inline void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2,
                                 std::uint32_t& c3, std::uint32_t k0, std::uint32_t k1) {
  const std::uint64_t p0 = static_cast<std::uint64_t>(kPhiloxMul0) * c0;
  const std::uint64_t p1 = static_cast<std::uint64_t>(kPhiloxMul1) * c2;
  c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
  c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c1 = static_cast<std::uint32_t>(p1);
  c3 = static_cast<std::uint32_t>(p0);
}

/// The block with the 128-bit counter {counter, counter_high} and the 64-bit key `seed`; low words
/// come first in both. firn's streams (random.h) use counter_high = 0.
FIRN_HD inline PhiloxBlock philox(std::uint64_t counter, std::uint64_t seed,
                                  std::uint64_t counter_high = 0) {
  PhiloxBlock b{{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                 static_cast<std::uint32_t>(counter_high),
                 static_cast<std::uint32_t>(counter_high >> 32)}};
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int r = 0; r < kPhiloxRounds; ++r) {
    philox_round(b.word[0], b.word[1], b.word[2], b.word[3], k0, k1);
    k0 += kPhiloxKey0;
    k1 += kPhiloxKey1;
  }
  return b;
}

// ---- From words to numbers. One word makes one element in every dtype. ----

/// Uniform in [0, 1), exact: the upper 24 bits in f32 (and for f16 and bf16, which are rounded from
/// it), all 32 bits in f64.
template <class C>
FIRN_HD inline C unit_uniform(std::uint32_t word) {
  if constexpr (sizeof(C) == 8) {
    return static_cast<C>(word) * static_cast<C>(0x1p-32);
  } else {
    // The value has 24 bits, so the signed conversion (the one CPUs have) is exact.
    return static_cast<C>(static_cast<std::int32_t>(word >> 8)) * static_cast<C>(0x1p-24);
  }
}

/// Uniform over [low, low + width), clamped to [least, most]: the smallest number of the stored
/// dtype that is >= low, and the largest that is < high. Rounding can then never reach `high`.
template <class C>
FIRN_HD inline C scaled_uniform(std::uint32_t word, C low, C width, C least, C most) {
  // Explicit fma: the bits must not depend on whether a compiler contracts a*b + c.
  const C v = std::fma(unit_uniform<C>(word), width, low);
  const C up = v < least ? least : v;
  return up > most ? most : up;
}

/// Two independent standard normals from two words (Box & Muller 1958): radius from the first,
/// (word + 1) / 2^32 in (0, 1], angle from the second. |z| <= 6.67.
template <class C>
FIRN_HD inline void box_muller(std::uint32_t radius_word, std::uint32_t angle_word, C& z0, C& z1) {
  const C u = (static_cast<C>(radius_word) + C(1)) * static_cast<C>(0x1p-32);
  const C radius = sqrt(C(-2) * log(u));
  const C angle = static_cast<C>(6.283185307179586) * unit_uniform<C>(angle_word);
  z0 = radius * cos(angle);
  z1 = radius * sin(angle);
}

/// An element is dropped if its word is below this: probability p, to 2^-32.
FIRN_HD inline std::uint32_t dropout_threshold(double p) {
  const double t = p * 0x1p32 + 0.5;
  return t >= 0x1p32 ? 0xffffffffu : static_cast<std::uint32_t>(t);
}

/// floor(x * n / 2^64): an integer in [0, n) from a 64-bit random x, biased by less than n / 2^64.
FIRN_HD inline std::uint64_t bounded(std::uint64_t x, std::uint64_t n) {
  const std::uint64_t xl = x & 0xffffffffu, xh = x >> 32, nl = n & 0xffffffffu, nh = n >> 32;
  const std::uint64_t mid = xh * nl + ((xl * nl) >> 32);
  const std::uint64_t low = xl * nh + (mid & 0xffffffffu);
  return xh * nh + (mid >> 32) + (low >> 32);
}

}  // namespace firn::math
