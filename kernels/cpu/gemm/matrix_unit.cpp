// Products of bf16 numbers, added in f32, on the matrix unit (AMX) and by vdpbf16ps.
#include "kernels/cpu/gemm/matrix_unit.h"

#if defined(__x86_64__)
#include "kernels/cpu/gemm/bf16_tiles.h"

FIRN_TILES_BEGIN

namespace firn::kernels::cpu {
namespace {

using namespace tiles;

/// AMX: tiles 0-3 are sums, 4-5 left factors, 6-7 right ones.
struct Amx {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  Amx() {
    Config config;
    for (int t = 0; t < 8; ++t) {
      config.bytes[t] = 64;
      config.rows[t] = 16;
    }
    // GCC assumes that the unit reads only a pointer's size of `config`.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Amx() { _tile_release(); }

  static unsigned special(const float* numbers) { return is_special(_mm512_loadu_ps(numbers)); }
  static bool is_finite(const Tiles& tile) { return tiles::is_finite(tile); }

  template <int kRows, int kColumns>
  static void load_sums(const Tiles& from) {
    if (!from.c) {
      _tile_zero(0);
      if constexpr (kColumns > 1) _tile_zero(1);
      if constexpr (kRows > 1) _tile_zero(2);
      if constexpr (kRows > 1 && kColumns > 1) _tile_zero(3);
      return;
    }
    const auto [c, ld] = from;
    const auto bytes = static_cast<std::size_t>(ld) * sizeof(float);
    _tile_loadd(0, c, bytes);
    if constexpr (kColumns > 1) _tile_loadd(1, c + 16, bytes);
    if constexpr (kRows > 1) _tile_loadd(2, c + 16 * ld, bytes);
    if constexpr (kRows > 1 && kColumns > 1) _tile_loadd(3, c + 16 * ld + 16, bytes);
  }
  template <int kRows, int kColumns>
  static void store_sums(const Tiles& to) {
    const auto [c, ld] = to;
    const auto bytes = static_cast<std::size_t>(ld) * sizeof(float);
    _tile_stored(0, c, bytes);
    if constexpr (kColumns > 1) _tile_stored(1, c + 16, bytes);
    if constexpr (kRows > 1) _tile_stored(2, c + 16 * ld, bytes);
    if constexpr (kRows > 1 && kColumns > 1) _tile_stored(3, c + 16 * ld + 16, bytes);
  }

  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, const Tiles& sums, const Tiles& result) {
    asm volatile("" ::: "memory");  // GCC does not know that the unit reads memory
    load_sums<kRows, kColumns>(sums);
    const char *left = p.left, *right = p.right;
    const auto row = static_cast<std::size_t>(p.left_row);
    for (int64_t s = 0; s < p.steps; ++s, left += p.left_step, right += p.right_step) {
      constexpr auto order = pairs<kParts, kTurned>;
#pragma GCC unroll 6
      for (std::size_t i = 0; i < order.size(); ++i) {
        const char* const x = left + order[i].left * kTile;
        const char* const y = right + order[i].right * kTile;
        const bool new_left = i == 0 || order[i].left != order[i - 1].left;
        const bool new_right = i == 0 || order[i].right != order[i - 1].right;
        // The left factor streams from the L2 cache past L1, in which the right one stays.
        if (new_left) _tile_stream_loadd(4, x, row);
        if (new_right) _tile_loadd(6, y, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (kColumns > 1 && new_right) _tile_loadd(7, y + p.right_panel, 64);
        if constexpr (kColumns > 1) _tile_dpbf16ps(1, 4, 7);
        if constexpr (kRows > 1) {
          if (new_left) _tile_stream_loadd(5, x + p.left_panel, row);
          _tile_dpbf16ps(2, 5, 6);
          if constexpr (kColumns > 1) _tile_dpbf16ps(3, 5, 7);
        }
      }
    }
    store_sums<kRows, kColumns>(result);
  }
};

/// Computes the same tiles by vdpbf16ps, with 8 rows x 2 panels of sums in registers.
struct Dot {
  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, const Tiles& sums, const Tiles& result) {
    static_assert(kParts == 1, "f16 is faster widened to f32");
    for (int half = 0; half < 2 * kRows; ++half) {
      __m512 sum[8][kColumns];
      const float* const before = sums.c ? sums.c + 8 * half * sums.ld : nullptr;
      float* const out = result.c + 8 * half * result.ld;
      const char* left = p.left + half / 2 * p.left_panel + half % 2 * 8 * p.left_row;
      const char* right = p.right;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < kColumns; ++j)
          sum[i][j] = before ? _mm512_loadu_ps(before + i * sums.ld + 16 * j) : _mm512_setzero_ps();
      for (int64_t s = 0; s < p.steps; ++s, left += p.left_step, right += p.right_step) {
        const int64_t pairs = s + 1 < p.steps ? 16 : p.last_pairs;
        for (int64_t r = 0; r < pairs; ++r) {
          __m512bh b[kColumns];
#pragma GCC unroll 2
          for (int j = 0; j < kColumns; ++j)
            b[j] = (__m512bh)_mm512_load_si512(right + j * p.right_panel + r * 64);
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) {
            int word;
            std::memcpy(&word, left + i * p.left_row + 4 * r, sizeof word);
            const auto a = (__m512bh)_mm512_set1_epi32(word);
#pragma GCC unroll 2
            for (int j = 0; j < kColumns; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], a, b[j]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < kColumns; ++j)
          _mm512_storeu_ps(out + i * result.ld + 16 * j, sum[i][j]);
    }
  }
};

/// Adds x b for a few rows x. Each step of two panels is packed, and multiplied from the L1 cache.
template <int kRows = 1>
void add_rows(int64_t m, const Matrix& x, const Matrix& b, int64_t k, int64_t n, float* c,
              int64_t ldc) {
  if constexpr (kRows < Microkernel::kFewRows)
    if (m > kRows) return add_rows<kRows + 1>(m, x, b, k, n, c, ldc);
  alignas(64) char panels[2 * kTile] = {};
  const auto* const left = static_cast<const char*>(x.data);
  const int64_t line = 2 * x.row;
  for (int64_t j = 0; j < n; j += kBlock) {
    __m512 sum[kRows][2];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
      for (int h = 0; h < 2; ++h) sum[i][h] = _mm512_loadu_ps(c + i * ldc + j + h * kLines);
    for (int64_t p = 0; p < k; p += kStep) {
      pack_step<Plain>(b.transposed().at(j, p), n - j, kStep, true, panels, kTile);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          int word;
          std::memcpy(&word, left + i * line + 2 * p + 4 * r, sizeof word);
          const auto a = (__m512bh)_mm512_set1_epi32(word);
          for (int h = 0; h < 2; ++h)
            sum[i][h] = _mm512_dpbf16_ps(sum[i][h], a,
                                         (__m512bh)_mm512_load_si512(panels + h * kTile + r * 64));
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
      for (int h = 0; h < 2; ++h) _mm512_storeu_ps(c + i * ldc + j + h * kLines, sum[i][h]);
  }
}

template <class Unit, class S>
constexpr Microkernel table(const char* name, Microkernel::AddRows* rows = nullptr) {
  return TileKernel<Unit, Packing<S>>::table(name, rows);
}

}  // namespace

const Microkernel& amx(DType dtype) {
  static constexpr Microkernel bf16 = table<Amx, Plain>("AMX bf16");
  static constexpr Microkernel f16 = table<Amx, Half>("AMX bf16 in two parts");
  static constexpr Microkernel f32 = table<Amx, Single>("AMX bf16 in three parts");
  return dtype == DType::bf16 ? bf16 : dtype == DType::f16 ? f16 : f32;
}

const Microkernel& avx512_bf16() {
  static constexpr Microkernel bf16 = table<Dot, Plain>("AVX-512 bf16", add_rows);
  return bf16;
}

}  // namespace firn::kernels::cpu

FIRN_TILES_END
#endif
