// Splits and packs factors for units that multiply bf16 numbers (tile_product.h has the layout), in
// AVX-512, for matrix_unit.cpp alone.
#pragma once

#include <immintrin.h>

// Code between FIRN_TILES_BEGIN and FIRN_TILES_END may use the unit's instructions, whatever the
// build's options are.
#define FIRN_BF16_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16"
#define FIRN_PRAGMA_OF(text) _Pragma(#text)
#define FIRN_PRAGMA(text) FIRN_PRAGMA_OF(text)
#if defined(__clang__)
#define FIRN_TILES_BEGIN \
  FIRN_PRAGMA(clang attribute push(__attribute__((target(FIRN_BF16_TARGET))), apply_to = function))
#define FIRN_TILES_END FIRN_PRAGMA(clang attribute pop)
#else
#define FIRN_TILES_BEGIN FIRN_PRAGMA(GCC push_options) FIRN_PRAGMA(GCC target(FIRN_BF16_TARGET))
#define FIRN_TILES_END FIRN_PRAGMA(GCC pop_options)
#endif

#include "kernels/cpu/device/prefetch.h"
#include "kernels/cpu/gemm/tile_product.h"

FIRN_TILES_BEGIN

namespace firn::kernels::cpu::tiles {

// ---- Parts ----
//
// load() reads up to 32 numbers into `words` registers of 16-bit words, which packing moves about.
// parts_of() makes bf16 parts of them once all are in place.

/// Numbers of 16 bits.
struct Narrow {
  static constexpr int words = 1;
  using Element = std::uint16_t;
  static void load(const void* p, __mmask32 use, __m512i* out) {
    out[0] = _mm512_maskz_loadu_epi16(use, p);
  }
};

/// bf16 numbers, which stay as they are.
struct Plain : Narrow {
  static constexpr int parts = 1;
  static constexpr DType dtype = DType::bf16;
  static void parts_of(const __m512i* word, __m512i* out) { out[0] = word[0]; }
};

/// Returns the upper halves of 32 f32 numbers.
inline __m512i upper_halves(__m512i low, __m512i high) {
  alignas(64) static constexpr auto index = [] {
    std::array<std::uint16_t, 32> out{};
    for (int i = 0; i < 32; ++i)
      out[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(2 * i + 1);
    return out;
  }();
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(index.data()), high);
}

inline __mmask16 is_special(__m512 x) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(x), exponent), exponent);
}

/// True if all numbers of a tile are finite.
inline bool is_finite(const Tiles& tile) {
  __m512i largest = _mm512_setzero_si512();  // without signs, as integers
  for (int64_t i = 0; i < kLines; ++i)
    largest =
        _mm512_max_epu32(largest, _mm512_slli_epi32(_mm512_loadu_si512(tile.c + i * tile.ld), 1));
  const __m512i infinity = _mm512_set1_epi32(static_cast<int>(0xff000000u));
  return _mm512_cmpge_epu32_mask(largest, infinity) == 0;
}

/// f16 in two parts: 11 significant bits are the first 8 and the remaining 3.
struct Half : Narrow {
  static constexpr int parts = 2;
  static constexpr DType dtype = DType::f16;
  static void parts_of(const __m512i* word, __m512i* out) {
    const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
    const __m512i size = _mm512_andnot_si512(sign, word[0]);
    const __mmask32 nonzero = _mm512_test_epi16_mask(size, size);
    // Exponents of 0 and 31 are those of subnormal numbers, infinities and NaNs.
    const __mmask32 ordinary = _mm512_cmplt_epu16_mask(
        _mm512_sub_epi16(size, _mm512_set1_epi16(0x0400)), _mm512_set1_epi16(0x7800));
    if ((nonzero & ~ordinary) != 0) [[unlikely]]
      return split_by_f32(word[0], out);
    // bf16 has 8 bits of exponent, whose bias is 112 more, and 7 of mantissa.
    const __m512i upper = _mm512_srli_epi16(size, 3);
    const __m512i first = _mm512_maskz_add_epi16(nonzero, upper, _mm512_set1_epi16(112 << 7));
    // The other 3 bits are a number up to 7, 25 powers of two below the exponent.
    alignas(64) static constexpr auto numbers = [] {
      constexpr std::array<int, 8> bf16{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
      std::array<std::uint16_t, 32> table{};
      for (std::size_t i = 0; i < 32; ++i)
        table[i] = static_cast<std::uint16_t>(bf16[i % 8] - (25 << 7));
      return table;
    }();
    const __m512i number = _mm512_permutexvar_epi16(word[0], _mm512_load_si512(numbers.data()));
    const __m512i exponent = _mm512_and_si512(upper, _mm512_set1_epi16(0x1f << 7));
    const __mmask32 has_rest = _mm512_test_epi16_mask(size, _mm512_set1_epi16(7));
    const __m512i rest = _mm512_add_epi16(number, exponent);
    const __m512i signs = _mm512_and_si512(sign, word[0]);
    out[0] = _mm512_or_si512(first, signs);
    out[1] = _mm512_maskz_mov_epi16(has_rest, _mm512_or_si512(rest, signs));
  }

 private:
  /// Splits any numbers, by way of f32.
  static void split_by_f32(__m512i h, __m512i* out) {
    const __m512 x[2] = {_mm512_cvtph_ps(_mm512_castsi512_si256(h)),
                         _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1))};
    const __m512i keep = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    __m512i first[2], rest[2];
    for (int i = 0; i < 2; ++i) {
      first[i] = _mm512_and_si512(_mm512_castps_si512(x[i]), keep);
      const __mmask16 wild = is_special(x[i]);
      rest[i] = _mm512_castps_si512(
          _mm512_maskz_sub_ps(static_cast<__mmask16>(~wild), x[i], _mm512_castsi512_ps(first[i])));
    }
    out[0] = upper_halves(first[0], first[1]);
    out[1] = upper_halves(rest[0], rest[1]);
  }
};

/// f32 in three parts of 8 significant bits. They are rounded to nearest, so that the omitted part
/// of a product is small and has either sign.
struct Single {
  static constexpr int parts = 3, words = 3;
  static constexpr DType dtype = DType::f32;
  using Element = float;
  static void load(const void* p, __mmask32 use, __m512i* out) {
    const float* const from = static_cast<const float*>(p);
    __m512 x[2] = {_mm512_maskz_loadu_ps(static_cast<__mmask16>(use), from),
                   _mm512_maskz_loadu_ps(static_cast<__mmask16>(use >> 16), from + 16)};
    const __m512i keep = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
    const __mmask16 wild[2] = {is_special(x[0]), is_special(x[1])};
    for (int part = 0; part < parts; ++part) {
      __m512i word[2];
      for (int i = 0; i < 2; ++i) {
        const __m512i bits = _mm512_castps_si512(x[i]);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        __m512i near = _mm512_and_si512(_mm512_add_epi32(bits, _mm512_add_epi32(half, odd)), keep);
        // A number that would round to infinity is truncated. A NaN keeps its upper half.
        const __mmask16 cut = is_special(_mm512_castsi512_ps(near)) | wild[i];
        near = _mm512_mask_and_epi32(near, cut, bits, keep);
        word[i] = near;
        x[i] =
            _mm512_maskz_sub_ps(static_cast<__mmask16>(~wild[i]), x[i], _mm512_castsi512_ps(near));
      }
      out[part] = upper_halves(word[0], word[1]);
    }
  }
  static void parts_of(const __m512i* word, __m512i* out) { std::copy_n(word, parts, out); }
};

// ---- Packing ----

/// Transposes a 16 x 16 matrix of pairs.
inline void transpose(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

inline __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(count, 0)) - 1;
}

/// Returns pairs of the first (or last) 16 numbers of two rows.
inline __m512i pairs_of(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

/// Writes the tiles of one panel and step, whose rows are [line] (`by_line`) or [pair].
template <class S>
void store_tiles(__m512i (*rows)[16], bool by_line, bool right, char* to) {
  if (by_line == right)
    for (int w = 0; w < S::words; ++w) transpose(rows[w]);
  const auto store = [&](int i) {
    __m512i words[S::words], parts[S::parts];
    for (int w = 0; w < S::words; ++w) words[w] = rows[w][i];
    S::parts_of(words, parts);
    for (int part = 0; part < S::parts; ++part)
      _mm512_store_si512(to + part * kTile + i * 64, parts[part]);
  };
  if constexpr (S::parts == 1) {  // the rows are still in registers
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) store(i);
  } else {
    for (int i = 0; i < 16; ++i) store(i);
  }
}

/// Loads words of the numbers at `from`, or zeros if `there` is false. It touches no memory beyond
/// the end: a CPU may take long over a masked load of nothing there.
template <class S>
void load_if(bool there, const void* from, __mmask32 use, __m512i* words) {
  if (there) return S::load(from, use, words);
  std::fill_n(words, S::words, _mm512_setzero_si512());
}

/// Packs one step of up to two panels from a corner of a matrix of `lines` x k.
template <class S>
void pack_step(const Matrix& a, int64_t lines, int64_t k, bool right, char* to, int64_t panel) {
  using Element = typename S::Element;
  constexpr int64_t kBytes = kStep * sizeof(Element);
  const Element* from = static_cast<const Element*>(a.data);
  alignas(64) Element gathered[2 * kLines * kStep];
  int64_t line = a.row, along = a.column;
  lines = std::min(lines, 2 * kLines);
  if (along != 1 && line != 1) {
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t p = 0; p < std::min(k, kStep); ++p)
        gathered[i * kStep + p] = from[i * line + p * along];
    from = gathered;
    line = kStep;
    along = 1;
  }
  __m512i rows[2][S::words][16];
  __m512i even[S::words], odd[S::words];
  if (along == 1) {
    const __mmask32 use = first(k);
    for (int64_t half = 0; half * kLines < lines; ++half) {
      for (int i = 0; i < 16; ++i) {
        const int64_t at = half * kLines + i;
        if (at < lines) FIRN_ISA::fetch(from + at * line + 2 * kStep, kBytes);
        load_if<S>(at < lines, from + at * line, use, even);
        for (int w = 0; w < S::words; ++w) rows[0][w][i] = even[w];
      }
      store_tiles<S>(rows[0], true, right, to + half * panel);
    }
    return;
  }
  const __mmask32 use = first(lines);
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t i = 2 * r; i < 2 * r + 2; ++i) FIRN_ISA::fetch(from + (i + kStep) * along, kBytes);
    load_if<S>(2 * r < k, from + 2 * r * along, use, even);
    load_if<S>(2 * r + 1 < k, from + (2 * r + 1) * along, use, odd);
    for (int w = 0; w < S::words; ++w) {
      rows[0][w][r] = pairs_of(_mm512_castsi512_si256(even[w]), _mm512_castsi512_si256(odd[w]));
      rows[1][w][r] =
          pairs_of(_mm512_extracti64x4_epi64(even[w], 1), _mm512_extracti64x4_epi64(odd[w], 1));
    }
  }
  store_tiles<S>(rows[0], false, right, to);
  if (lines > kLines) store_tiles<S>(rows[1], false, right, to + panel);
}

/// Factors of S, packed in the order in which they are stored.
template <class S>
struct Packing {
  static constexpr int parts = S::parts;
  static void pack(const Matrix& a, int64_t lines, int64_t k, bool right, char* to) {
    const int64_t panel = panel_bytes<parts>(k), steps = math::ceil_div(k, kStep);
    const int64_t panels = math::ceil_div(lines, kLines);
    const auto step = [&](int64_t i, int64_t s) {
      pack_step<S>(a.at(i * kLines, s * kStep), lines - i * kLines, k - s * kStep, right,
                   to + i * panel + s * step_bytes<parts>, panel);
    };
    if (a.row == 1) {
      for (int64_t s = 0; s < steps; ++s)
        for (int64_t i = 0; i < panels; i += 2) step(i, s);
    } else {
      for (int64_t i = 0; i < panels; i += 2)
        for (int64_t s = 0; s < steps; ++s) step(i, s);
    }
  }
};

}  // namespace firn::kernels::cpu::tiles

FIRN_TILES_END
