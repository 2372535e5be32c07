// Products of bf16 numbers, added in f32: on the matrix unit (AMX), and by vdpbf16ps.
#include "kernels/cpu/gemm/matrix_unit.h"

#if defined(__x86_64__)
#include "kernels/cpu/gemm/bf16_tiles.h"

FIRN_BF16_BEGIN

namespace firn::kernels::cpu {
namespace {

using namespace bf16_tiles;

template <class S>
Left pack_left(const Matrix& a, int64_t m, int64_t k, void* packed) {
  pack<S>(a, m, k, false, static_cast<char*>(packed));
  return {static_cast<const char*>(packed), 64, panel_bytes<S>(k), step_bytes<S>};
}

template <class S>
void pack_right(const Matrix& b, int64_t k, int64_t n, void* packed) {
  pack<S>(b.transposed(), n, k, true, static_cast<char*>(packed));
}

template <class S>
bool places_left(const Matrix& a) {
  return S::parts == 1 && a.column == 1;
}

template <class S>
Left place_left(const Matrix& a, int64_t m, int64_t k, void* tail) {
  Left left{static_cast<const char*>(a.data), 2 * a.row, 2 * a.row * kLines, 2 * kStep};
  if (const int64_t whole = k / kStep * kStep; whole != k) {
    pack<S>(a.at(0, whole), m, k - whole, false, static_cast<char*>(tail));
    left.tail = static_cast<const char*>(tail);
  }
  return left;
}

// ---- Units ----

/// Products of parts, in an order in which only one factor changes from one to the next. With
/// kTurned the factors have changed places, and the order is that of the product before.
struct Pair {
  int left, right;
};
template <int kParts, bool kTurned>
constexpr auto pairs = [] {
  auto order = [] {
    if constexpr (kParts == 1)
      return std::array{Pair{0, 0}};
    else if constexpr (kParts == 2)
      return std::array{Pair{0, 0}, Pair{1, 0}, Pair{1, 1}, Pair{0, 1}};
    else
      return std::array{Pair{2, 0}, Pair{1, 0}, Pair{1, 1}, Pair{0, 1}, Pair{0, 0}, Pair{0, 2}};
  }();
  if (kTurned)
    for (Pair& pair : order) pair = {pair.right, pair.left};
  return order;
}();

/// Panels of one block of c: up to 2 x 2 tiles.
struct Panels {
  const char* left;
  int64_t left_row, left_panel, left_step;
  const char* right;
  int64_t right_panel, right_step;
  int64_t steps;
};

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
    _tile_loadconfig(&config);
  }
  ~Amx() { _tile_release(); }

  template <int kRows, int kColumns>
  static void load_sums(const float* c, int64_t ld, bool zero) {
    if (zero) {
      _tile_zero(0);
      if constexpr (kColumns > 1) _tile_zero(1);
      if constexpr (kRows > 1) _tile_zero(2);
      if constexpr (kRows > 1 && kColumns > 1) _tile_zero(3);
      return;
    }
    const auto bytes = static_cast<std::size_t>(ld) * sizeof(float);
    _tile_loadd(0, c, bytes);
    if constexpr (kColumns > 1) _tile_loadd(1, c + 16, bytes);
    if constexpr (kRows > 1) _tile_loadd(2, c + 16 * ld, bytes);
    if constexpr (kRows > 1 && kColumns > 1) _tile_loadd(3, c + 16 * ld + 16, bytes);
  }
  template <int kRows, int kColumns>
  static void store_sums(float* c, int64_t ld) {
    const auto bytes = static_cast<std::size_t>(ld) * sizeof(float);
    _tile_stored(0, c, bytes);
    if constexpr (kColumns > 1) _tile_stored(1, c + 16, bytes);
    if constexpr (kRows > 1) _tile_stored(2, c + 16 * ld, bytes);
    if constexpr (kRows > 1 && kColumns > 1) _tile_stored(3, c + 16 * ld + 16, bytes);
  }

  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, float* c, int64_t ld, bool zero) {
    load_sums<kRows, kColumns>(c, ld, zero);
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
    store_sums<kRows, kColumns>(c, ld);
  }
};

/// vdpbf16ps on the same tiles: 8 rows x 2 panels of sums in registers.
struct Dot {
  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, float* c, int64_t ld, bool zero) {
    static_assert(kParts == 1, "f16 is faster widened to f32");
    for (int half = 0; half < 2 * kRows; ++half) {
      __m512 sum[8][kColumns];
      float* const out = c + 8 * half * ld;
      const char* left = p.left + half / 2 * p.left_panel + half % 2 * 8 * p.left_row;
      const char* right = p.right;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < kColumns; ++j)
          sum[i][j] = zero ? _mm512_setzero_ps() : _mm512_loadu_ps(out + i * ld + 16 * j);
      for (int64_t s = 0; s < p.steps; ++s, left += p.left_step, right += p.right_step) {
        for (int r = 0; r < 16; ++r) {
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
        for (int j = 0; j < kColumns; ++j) _mm512_storeu_ps(out + i * ld + 16 * j, sum[i][j]);
    }
  }
};

/// The matrix unit in plain code, as Intel's manual describes tdpbf16ps: even and odd terms of a
/// step have sums of their own. For tests; needs AVX-512, in which factors are packed.
struct Model {
  static float number(const char* at) {
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
  template <int kRows, int kColumns, int kParts, bool kTurned>
  static void block(const Panels& p, float* c, int64_t ld, bool zero) {
    for (int64_t i = 0; i < kRows * kLines; ++i) {
      for (int64_t j = 0; j < kColumns * kLines; ++j) {
        float sum = zero ? 0 : c[i * ld + j];
        for (int64_t s = 0; s < p.steps; ++s) {
          for (const Pair& pair : pairs<kParts, kTurned>) {
            const char* const x = p.left + i / kLines * p.left_panel + i % kLines * p.left_row +
                                  s * p.left_step + pair.left * kTile;
            const char* const y = p.right + j / kLines * p.right_panel + j % kLines * 4 +
                                  s * p.right_step + pair.right * kTile;
            float even = 0, odd = 0;
            for (int r = 0; r < 16; ++r) {
              even = __builtin_fmaf(number(x + 4 * r), number(y + 64 * r), even);
              odd = __builtin_fmaf(number(x + 4 * r + 2), number(y + 64 * r + 2), odd);
            }
            sum += even + odd;
          }
        }
        c[i * ld + j] = sum;
      }
    }
  }
};

/// The numbers of a line's part of a tile, put together from their parts.
template <class S>
void restore(const char* tile, int64_t line, int64_t row, bool right, float* to) {
  for (int64_t p = 0; p < kStep; ++p) {
    float x = 0;  // from the smallest part up, since the first two may add up to infinity
    for (int part = S::parts - 1; part >= 0; --part)
      x += Model::number(tile + part * kTile +
                         (right ? p / 2 * 64 + line * 4 + p % 2 * 2 : line * row + p * 2));
    to[p] = x;
  }
}

/// Computes the elements of c [kLines, kLines] that are not finite once more, in f32, from the sums
/// that the block began with (null: 0). Infinity times a part that is 0 is NaN, and so is the sum
/// of parts that overflow with either sign. Other elements stay, so each depends on its row and
/// column only.
template <class S>
void restore_block(const Panels& p, const float* before, float* c, int64_t ld) {
  __mmask16 wild[kLines];
  unsigned any = 0;
  for (int64_t i = 0; i < kLines; ++i) any |= wild[i] = is_special(_mm512_loadu_ps(c + i * ld));
  if (any == 0) return;
  alignas(64) float x[kLines][kStep], y[kLines][kStep];
  for (int64_t s = 0; s < p.steps; ++s) {
    for (int64_t i = 0; i < kLines; ++i) {
      restore<S>(p.left + s * p.left_step, i, p.left_row, false, x[i]);
      restore<S>(p.right + s * p.right_step, i, 64, true, y[i]);
    }
    for (int64_t i = 0; i < kLines; ++i) {
      for (int64_t j = 0; j < kLines; ++j) {
        if ((wild[i] >> j & 1) == 0) continue;
        float& sum = c[i * ld + j];
        if (s == 0) sum = before ? before[i * 2 * kLines + j] : 0;
        for (int64_t q = 0; q < kStep; ++q) sum += x[i][q] * y[j][q];
      }
    }
  }
}

/// Steps of k for which two right panels stay in the L1 cache.
template <class S>
constexpr int64_t kSteps = 32 / S::parts;

template <class Unit, class S, bool kTurned>
void block_of(bool tall, bool wide, const Panels& p, float* c, int64_t ld, bool zero) {
  if (tall && wide) {
    Unit::template block<2, 2, S::parts, kTurned>(p, c, ld, zero);
  } else if (tall) {
    Unit::template block<2, 1, S::parts, kTurned>(p, c, ld, zero);
  } else if (wide) {
    Unit::template block<1, 2, S::parts, kTurned>(p, c, ld, zero);
  } else {
    Unit::template block<1, 1, S::parts, kTurned>(p, c, ld, zero);
  }
}

template <class Unit, class S>
void multiply(int64_t m, int64_t n, int64_t k, const Left& left, const void* right, float* c,
              int64_t ldc, bool add) {
  // GCC does not know that the unit reads memory.
  asm volatile("" ::: "memory");
  [[maybe_unused]] const Unit unit;
  alignas(64) float edge[4 * kLines * kLines];
  const int64_t steps = math::ceil_div(k, kStep);
  const auto* const panels = static_cast<const char*>(right);
  const int64_t right_panel = panel_bytes<S>(k);
  const auto block = [&](int64_t i, int64_t j, int64_t begin, int64_t count, const char* from,
                         int64_t row, int64_t panel, bool zero) {
    const int64_t rows = std::min<int64_t>(2 * kLines, m - i),
                  cols = std::min<int64_t>(2 * kLines, n - j);
    Panels p{from,
             row,
             panel,
             left.step,
             panels + j / kLines * right_panel + begin * step_bytes<S>,
             right_panel,
             step_bytes<S>,
             count};
    const bool tall = rows > kLines, wide = cols > kLines;
    const bool whole = rows % kLines == 0 && cols % kLines == 0;
    float* out = c + i * ldc + j;
    int64_t ld = ldc;
    if (!whole) {
      out = edge;
      ld = 2 * kLines;
      if (!zero)
        for (int64_t r = 0; r < rows; ++r) std::copy_n(c + (i + r) * ldc + j, cols, edge + r * ld);
    }
    alignas(64) float before[4 * kLines * kLines];
    for (int64_t r = 0; S::parts > 1 && !zero && r < rows; ++r)
      std::copy_n(out + r * ld, cols, before + r * 2 * kLines);
    if (left.turned && S::parts > 1) {
      block_of<Unit, S, true>(tall, wide, p, out, ld, zero);
    } else {
      block_of<Unit, S, false>(tall, wide, p, out, ld, zero);
    }
    for (int a = 0; S::parts > 1 && a <= tall; ++a) {
      for (int b = 0; b <= wide; ++b) {
        Panels one = p;
        one.left += a * p.left_panel;
        one.right += b * p.right_panel;
        const int64_t i0 = a * kLines, j0 = b * kLines;
        restore_block<S>(one, zero ? nullptr : before + i0 * 2 * kLines + j0, out + i0 * ld + j0,
                         ld);
      }
    }
    if (!whole)
      for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * ld, cols, c + (i + r) * ldc + j);
  };
  if (steps == 0 && !add)
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
  const int64_t in_place = left.tail ? steps - 1 : steps;
  for (int64_t begin = 0; begin < steps; begin += kSteps<S>) {
    const int64_t end = std::min(steps, begin + kSteps<S>);
    const int64_t count = std::min(end, in_place) - begin;
    for (int64_t j = 0; j < n; j += 2 * kLines) {
      for (int64_t i = 0; i < m; i += 2 * kLines) {
        const char* const from = left.data + i / kLines * left.panel + begin * left.step;
        if (count > 0) block(i, j, begin, count, from, left.row, left.panel, begin == 0 && !add);
        if (end > in_place)
          block(i, j, in_place, 1, left.tail + i / kLines * kTile, 64, kTile,
                in_place == 0 && !add);
      }
    }
  }
}

template <class Unit, class S>
constexpr Microkernel table(const char* name) {
  return {name,
          kLines,
          kLines,
          packed_bytes<S>,
          [](int64_t k, int64_t n) { return packed_bytes<S>(n, k); },
          pack_left<S>,
          pack_right<S>,
          places_left<S>,
          place_left<S>,
          multiply<Unit, S>};
}

}  // namespace

const Microkernel& amx(DType dtype) {
  static constexpr Microkernel bf16 = table<Amx, Plain>("AMX bf16");
  static constexpr Microkernel f16 = table<Amx, Half>("AMX bf16 in two parts");
  static constexpr Microkernel f32 = table<Amx, Single>("AMX bf16 in three parts");
  return dtype == DType::bf16 ? bf16 : dtype == DType::f16 ? f16 : f32;
}

const Microkernel& amx_model(DType dtype) {
  static constexpr Microkernel bf16 = table<Model, Plain>("model of AMX");
  static constexpr Microkernel f16 = table<Model, Half>("model of AMX in two parts");
  static constexpr Microkernel f32 = table<Model, Single>("model of AMX in three parts");
  return dtype == DType::bf16 ? bf16 : dtype == DType::f16 ? f16 : f32;
}

const Microkernel& avx512_bf16() {
  static constexpr Microkernel bf16 = table<Dot, Plain>("AVX-512 bf16");
  return bf16;
}

}  // namespace firn::kernels::cpu

FIRN_BF16_END
#endif
