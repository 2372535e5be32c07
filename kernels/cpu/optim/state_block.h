// Blocks of optimizer states in 8 bits, on the CPU (kernels/math/dynamic_code.h): a tile at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/device/tile.h"
#include "kernels/math/dynamic_code.h"

// Where argument-dependent lookup finds the functions of a formula.
namespace firn::kernels::cpu::FIRN_ISA::tiles {

inline TileF by_exponent(const math::ByExponent& t, TileF x) {
  const TileF::Bits e = detail::bits(x) >> 23;
#if defined(__AVX512F__)
  TileF twice;
  std::memcpy(&twice.v, t.of, sizeof(t.of));
  std::memcpy(reinterpret_cast<char*>(&twice.v) + sizeof(t.of), t.of, sizeof(t.of));
  return TileF(_mm512_maskz_permutexvar_ps(0xffff, std::bit_cast<__m512i>(e), twice.v));
#elif defined(__AVX2__)
  return TileF(_mm256_permutevar8x32_ps(_mm256_loadu_ps(t.of), std::bit_cast<__m256i>(e)));
#else
  TileF y;
  for (int i = 0; i < TileF::size; ++i) y.v[i] = t.of[e[i] & 7];
  return y;
#endif
}
inline TileF fma(TileF a, TileF b, TileF c) {
#if defined(__AVX512F__)
  return TileF(_mm512_maskz_fmadd_ps(0xffff, a.v, b.v, c.v));
#elif defined(__AVX2__) && defined(__FMA__)
  return TileF(_mm256_fmadd_ps(a.v, b.v, c.v));
#else
  return detail::per_lane([](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);
#endif
}
inline TileF power_below(TileF x) { return detail::from_bits<float>(detail::bits(x) & 0x7f800000); }
inline TileF rough_power(TileF x, float slope, float shift) {
  const TileF bits(__builtin_convertvector(detail::bits(x), TileF::Vec));
  return detail::from_bits<float>(detail::integers(bits * TileF(slope) + TileF(shift)));
}

}  // namespace firn::kernels::cpu::FIRN_ISA::tiles

namespace firn::kernels::cpu::FIRN_ISA {

/// The states of one block, math::kStateBlock values.
template <bool kSigned>
void decode_block(const std::uint8_t* codes, float scale, float* out) {
  using tiles::TileF;
  using Byte = std::conditional_t<kSigned, std::int8_t, std::uint8_t>;
  alignas(64) float bytes[math::kStateBlock];  // GCC 12 widens bytes in loops, but not in tiles
  for (int i = 0; i < math::kStateBlock; ++i)
    bytes[i] = static_cast<float>(static_cast<Byte>(codes[i]));
  for (int i = 0; i < math::kStateBlock; i += TileF::size)
    (math::DynamicCode<kSigned>::decode(TileF::load(bytes + i)) * TileF(scale)).store(out + i);
}

/// The inverse. Returns the scale. Values behind a parameter's end are zeros.
template <bool kSigned>
float encode_block(const float* values, std::uint8_t* codes) {
  using tiles::TileF;
  TileF largest(0);
  for (int i = 0; i < math::kStateBlock; i += TileF::size)
    largest = max(largest, abs(TileF::load(values + i)));
  float top = 0;
  for (int i = 0; i < TileF::size; ++i) top = largest[i] > top ? largest[i] : top;
  const math::BlockScale s = math::block_scale(top);
  alignas(64) std::int32_t wide[math::kStateBlock];  // narrowed in a loop for the same reason
  for (int i = 0; i < math::kStateBlock; i += TileF::size) {
    const TileF x = TileF::load(values + i) * TileF(s.inverse);
    const auto code = tiles::detail::integers(math::DynamicCode<kSigned>::encode(x));
    std::memcpy(wide + i, &code, sizeof(code));
  }
  for (int i = 0; i < math::kStateBlock; ++i) codes[i] = static_cast<std::uint8_t>(wide[i]);
  return s.scale;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
