// Blocks of optimizer states in 8 bits, on the CPU, a tile at a time (kernels/math/dynamic_code.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/device/tile.h"
#include "kernels/math/optim/dynamic_code.h"
#include "kernels/math/optim/step_state.h"

// Argument-dependent lookup finds the functions of a formula in this namespace.
namespace firn::kernels::cpu::FIRN_ISA::tiles {

/// Returns each lane's entry at its bits modulo 8.
inline TileF entry(const math::ByDecade& t, TileF::Bits at) {
#if defined(__AVX512F__)
  const __m512 twice = _mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(t.of));
  return TileF(_mm512_maskz_permutexvar_ps(0xffff, std::bit_cast<__m512i>(at), twice));
#elif defined(__AVX2__)
  return TileF(_mm256_permutevar8x32_ps(_mm256_loadu_ps(t.of), std::bit_cast<__m256i>(at)));
#else
  TileF y;
  for (int i = 0; i < TileF::size; ++i) y.v[i] = t.of[at[i] & 7];
  return y;
#endif
}
inline TileF by_exponent(const math::ByDecade& t, TileF x) {
  return entry(t, detail::bits(x) >> 23);
}
inline TileF signed_as(TileF q, TileF x) {
  constexpr std::int32_t kSign = std::numeric_limits<std::int32_t>::min();
  return detail::from_bits<float>(detail::bits(q) | (detail::bits(x) & kSign));
}
inline TileF rough_log(TileF x, float slope, float held) {
  const TileF bits(__builtin_convertvector(detail::bits(x), TileF::Vec));
  return bits * TileF(slope) + TileF(held);
}
inline TileF by_held(const math::ByDecade& t, TileF held) { return entry(t, detail::bits(held)); }
inline TileF next_if(Mask<float> more, TileF held) {
#if defined(__AVX512F__)
  return where(more, held + TileF(1), held);
#else
  return detail::from_bits<float>(detail::bits(held) - more.v);  // all bits of a lane are -1
#endif
}
inline TileF power_of_held(TileF held, float c) {
  return detail::from_bits<float>((detail::bits(held) << 23) +
                                  (std::bit_cast<std::int32_t>(c) & 0x7fffff));
}

/// Loads bytes as numbers; those of a signed code are -128 to 127.
template <bool kSigned>
TileF load_bytes(const std::uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return TileF(_mm512_maskz_cvtepi32_ps(0xffff, kSigned
                                                    ? _mm512_maskz_cvtepi8_epi32(0xffff, bytes)
                                                    : _mm512_maskz_cvtepu8_epi32(0xffff, bytes)));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return TileF(
      _mm256_cvtepi32_ps(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes)));
#else
  TileF y;
  for (int i = 0; i < TileF::size; ++i)
    y.v[i] =
        kSigned ? static_cast<float>(static_cast<std::int8_t>(p[i])) : static_cast<float>(p[i]);
  return y;
#endif
}

// Integers of 32 bits are packed to 16 bits, then to bytes. Packing two registers works on quarters
// of them, so four registers' bytes come out in groups of four. store_packed() undoes that order.
#if defined(__AVX512BW__)
using Words = __m512i;
inline Words truncated(TileF x) { return _mm512_maskz_cvttps_epi32(0xffff, x.v); }
inline Words pack_words(Words a, Words b) { return _mm512_maskz_packs_epi32(~0u, a, b); }
inline Words pack_bytes(Words a, Words b) { return _mm512_maskz_packs_epi16(~0ull, a, b); }
inline Words pack_low_bytes(Words a, Words b) {
  const Words low = _mm512_set1_epi16(0xff);
  return _mm512_maskz_packus_epi16(~0ull, _mm512_and_si512(a, low), _mm512_and_si512(b, low));
}
inline Words at_least_of(Words a, Words b, short most) {
  return _mm512_maskz_max_epi16(~0u, a, _mm512_maskz_min_epi16(~0u, b, _mm512_set1_epi16(most)));
}
inline Words negated_bytes(Words a) { return _mm512_sub_epi8(_mm512_setzero_si512(), a); }
inline void store_packed(Words a, std::uint8_t* p) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_maskz_permutexvar_epi32(0xffff, order, a));
}
#elif defined(__AVX2__)
using Words = __m256i;
inline Words truncated(TileF x) { return _mm256_cvttps_epi32(x.v); }
inline Words pack_words(Words a, Words b) { return _mm256_packs_epi32(a, b); }
inline Words pack_bytes(Words a, Words b) { return _mm256_packs_epi16(a, b); }
inline Words pack_low_bytes(Words a, Words b) {
  const Words low = _mm256_set1_epi16(0xff);
  return _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
}
inline Words at_least_of(Words a, Words b, short most) {
  return _mm256_max_epi16(a, _mm256_min_epi16(b, _mm256_set1_epi16(most)));
}
inline Words negated_bytes(Words a) { return _mm256_sub_epi8(_mm256_setzero_si256(), a); }
inline void store_packed(Words a, std::uint8_t* p) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(a, order));
}
#endif

/// Writes the bytes of four tiles, as DynamicCode::encode() gives them. Its last steps work on
/// packed integers here. Packing saturates 128 but not -128, so signs are reversed around it; this
/// takes -128 to -127.
template <bool kSigned>
[[gnu::always_inline]] inline void encode_tiles(const TileF (&x)[4], std::uint8_t* p) {
  using Code = math::DynamicCode<kSigned>;
#if defined(__AVX2__)
  if constexpr (kSigned) {
    Words w[4];
    for (int i = 0; i < 4; ++i) w[i] = truncated(signed_as(Code::steps(abs(x[i])), -x[i]));
    store_packed(negated_bytes(pack_bytes(pack_words(w[0], w[1]), pack_words(w[2], w[3]))), p);
  } else {
    Words w[4], b[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = truncated(Code::steps(x[i]));
      b[i] = std::bit_cast<Words>(x[i].v);
    }
    store_packed(pack_low_bytes(at_least_of(pack_words(w[0], w[1]), pack_words(b[0], b[1]), 2),
                                at_least_of(pack_words(w[2], w[3]), pack_words(b[2], b[3]), 2)),
                 p);
  }
#else
  for (int i = 0; i < 4; ++i) {
    const TileF::Bits n = detail::integers(Code::encode(x[i]));
    for (int l = 0; l < TileF::size; ++l) p[i * TileF::size + l] = static_cast<std::uint8_t>(n[l]);
  }
#endif
}

}  // namespace firn::kernels::cpu::FIRN_ISA::tiles

namespace firn::kernels::cpu::FIRN_ISA {

/// The states of a block, math::kStateBlock elements. They are in f32 between update and encoding.
template <class Rule>
struct StateBlock {
  alignas(64) float values[Rule::kStates][math::kStateBlock];
  TileF inverse[Rule::kStates];  ///< inverses of the scales
  std::uint8_t* codes[Rule::kStates];
  float* scales[Rule::kStates];

  /// Sets the scale of state s from the largest magnitude in each lane.
  void set_scale(int s, TileF largest) {
    float top = 0;
    for (int i = 0; i < TileF::size; ++i) top = largest[i] > top ? largest[i] : top;
    const math::BlockScale scale = math::block_scale(top);
    *scales[s] = scale.scale;
    inverse[s] = TileF(scale.inverse);
    if (!(top <= scale.scale)) clamp(s, TileF(scale.scale));
  }
  /// Writes the codes.
  void encode() {
    for (int s = 0; s < Rule::kStates; ++s)
      Rule::state_is_signed(s) ? encode<true>(s) : encode<false>(s);
  }

 private:
  template <bool kSigned>
  void encode(int s) {
    const TileF by = inverse[s];
    for (int i = 0; i < math::kStateBlock; i += 4 * TileF::size) {
      TileF x[4];
      for (int t = 0; t < 4; ++t) x[t] = TileF::load(values[s] + i + t * TileF::size) * by;
      tiles::encode_tiles<kSigned>(x, codes[s] + i);
    }
  }
  /// Limits numbers beyond the largest scale, and blocks whose numbers are too small.
  void clamp(int s, TileF most) {
    for (int i = 0; i < math::kStateBlock; i += TileF::size)
      min(max(TileF::load(values[s] + i), -most), most).store(values[s] + i);
  }
};

/// Decodes a tile of states.
template <bool kSigned>
TileF decode_tile(const std::uint8_t* codes, TileF scale) {
  return math::DynamicCode<kSigned>::decode(tiles::load_bytes<kSigned>(codes)) * scale;
}

/// Updates a block. `w` is updated in place; the block has its new states and scales, and still has
/// to be encoded. Values beyond a parameter's end are zeros.
template <class Rule>
void update_block(const typename Rule::template Coefficients<TileF>& k, TileF limit, float* w,
                  const float* g, StateBlock<Rule>& block) {
  TileF scale[Rule::kStates], largest[Rule::kStates];
  for (int s = 0; s < Rule::kStates; ++s) {
    scale[s] = TileF(*block.scales[s]);
    largest[s] = TileF(0);
  }
  for (int i = 0; i < math::kStateBlock; i += TileF::size) {
    TileF state[Rule::kStates], weight = TileF::load(w + i);
    for (int s = 0; s < Rule::kStates; ++s)
      state[s] = Rule::state_is_signed(s) ? decode_tile<true>(block.codes[s] + i, scale[s])
                                          : decode_tile<false>(block.codes[s] + i, scale[s]);
    Rule::template apply<TileF>(
        k, weight, math::clip_to(TileF::load(g + i) * k.gradient_factor, limit), state);
    weight.store(w + i);
    for (int s = 0; s < Rule::kStates; ++s) {
      state[s].store(block.values[s] + i);
      largest[s] = max(largest[s], abs(state[s]));
    }
  }
  for (int s = 0; s < Rule::kStates; ++s) block.set_scale(s, largest[s]);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
