// Products of f32 numbers by vector instructions. A block of c stays in registers. The right factor
// is packed in panels of two registers' width; the left one is read number by number.
#include "kernels/cpu/gemm/fma.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/prefetch.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using std::int64_t;
using tiles::TileF;

constexpr int kWidth = TileF::size, kColumns = 2 * kWidth;
/// Rows of a block. Its sums fill half of AVX-512's 32 registers, or 12 of 16 registers: with only
/// 8, each sum would wait for its previous multiply-add.
constexpr int kRows = kWidth == 16 ? 8 : 6;
/// Depth in k of a right panel that stays in the L1 cache.
constexpr int64_t kDepth = 8192 / kColumns;

std::size_t left_bytes(int64_t m, int64_t k) {
  return static_cast<std::size_t>(math::ceil_div(m, kRows) * kRows * k) * sizeof(float);
}
std::size_t right_bytes(int64_t k, int64_t n) {
  return static_cast<std::size_t>(math::ceil_div(n, kColumns) * kColumns * k) * sizeof(float);
}

/// Returns n numbers of `a` from element (i, j) on, along a row or a column.
const float* numbers(const Matrix& a, int64_t i, int64_t j, int64_t stride, int64_t n,
                     float* buffer) {
  return load_row(a.at(i, j).data, a.dtype, stride, n, buffer);
}

/// Distance in rows of prefetching: a slice of columns reads a short run of each row.
constexpr int64_t kAhead = 16;

Left pack_left(const Matrix& a, int64_t m, int64_t k, void* packed) {
  float* const to = static_cast<float*>(packed);
  if (a.column == 1 || a.row != 1) {  // row after row
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; p += kRow) {
        const int64_t count = std::min(kRow, k - p);
        float* const out = to + i * k + p;
        const float* const from = numbers(a, i, p, a.column, count, out);
        if (from != out) std::copy_n(from, count, out);
      }
    }
    return {static_cast<const char*>(packed), 4 * k, 4 * k * kRows, 4};
  }
  // Packs panels of kRows rows, for each of which columns are contiguous.
  constexpr int64_t kPiece = kRow / kRows * kRows;
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  alignas(64) float buffer[kPiece];
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t first = 0; first < m; first += kPiece) {
      const int64_t count = std::min(kPiece, m - first);
      fetch(a.at(first, p + kAhead).data, count * size);
      const float* const from = numbers(a, first, p, 1, count, buffer);
      for (int64_t i = 0; i < count; i += kRows) {
        float* const panel = to + (first + i) * k + p * kRows;
        if (count - i >= kRows) {
          std::memcpy(panel, from + i, kRows * sizeof(float));
        } else {
          std::copy_n(from + i, count - i, panel);
        }
      }
    }
  }
  return {static_cast<const char*>(packed), 4, 4 * k * kRows, 4 * kRows};
}

/// Packs one row as far as whole panels go, and returns the number of columns packed.
template <class T>
int64_t pack_row(const void* row, int64_t k, int64_t n, float* panel) {
  const T* const from = static_cast<const T*>(row);
  int64_t j = 0;
  for (; j + kColumns <= n; j += kColumns, panel += k * kColumns)
    for (int64_t h = 0; h < kColumns; h += kWidth) widened(from + j + h).store(panel + h);
  return j;
}

/// Packs the rows of b in order.
void pack_rows(const Matrix& b, int64_t k, int64_t n, float* to) {
  for (int64_t p = 0; p < k; ++p, to += kColumns) {
    int64_t j = 0;
    if (b.column == 1) {
      fetch(b.at(p + kAhead, 0).data, n * static_cast<int64_t>(size_of(b.dtype)));
      j = (b.dtype == DType::f32    ? pack_row<float>
           : b.dtype == DType::bf16 ? pack_row<bfloat16>
                                    : pack_row<half>)(b.at(p, 0).data, k, n, to);
    }
    for (; j < n; j += kColumns) {
      const int64_t count = std::min<int64_t>(kColumns, n - j);
      const float* const from = numbers(b, p, j, b.column, count, to + j * k);
      if (from != to + j * k) std::copy_n(from, count, to + j * k);
      std::fill_n(to + j * k + count, kColumns - count, 0.0f);
    }
  }
}

/// Packs a b with contiguous columns: they are transposed, 16-bit ones in pieces of depth kPiece.
void pack_columns(const Matrix& b, int64_t k, int64_t n, float* to) {
  constexpr int64_t kPiece = kRow / kColumns;
  alignas(64) float wide[kColumns * kPiece];
  for (int64_t j = 0; j < n; j += kColumns, to += k * kColumns) {
    const int64_t cols = std::min<int64_t>(kColumns, n - j);
    if (cols < kColumns) std::fill_n(to, k * kColumns, 0.0f);
    if (b.dtype == DType::f32) {
      const auto* const from = static_cast<const float*>(b.at(0, j).data);
      transpose_block(from, b.column, to, kColumns, k, cols);
      continue;
    }
    for (int64_t p = 0; p < k; p += kPiece) {
      const int64_t count = std::min(kPiece, k - p);
      for (int64_t i = 0; i < cols; ++i) numbers(b, p, j + i, 1, count, wide + i * kPiece);
      transpose_block(wide, kPiece, to + p * kColumns, kColumns, count, cols);
    }
  }
}

void pack_right(const Matrix& b, int64_t k, int64_t n, void* packed) {
  if (b.row != 1 || b.column == 1) {
    pack_rows(b, k, n, static_cast<float*>(packed));
  } else {
    pack_columns(b, k, n, static_cast<float*>(packed));
  }
}

bool places_left(const Matrix& a) { return a.dtype == DType::f32 && a.column == 1; }
bool takes_strides(DType dtype) { return dtype == DType::f32; }
Left place_left(const Matrix& a, int64_t, int64_t, void*) {
  return {static_cast<const char*>(a.data), 4 * a.row, 4 * a.row * kRows, 4 * a.column};
}

/// c [kHeight, kVectors kWidth] = or += the product of `depth` columns of `left` and rows of
/// `right`.
template <int kHeight, int kVectors>
void block(const char* left, int64_t row, int64_t step, const float* right, int64_t depth, float* c,
           int64_t ld, bool zero) {
  TileF::Vec sum[kHeight][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i)
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = zero ? TileF::Vec{} : TileF::load(c + i * ld + j * kWidth).v;
  for (int64_t p = 0; p < depth; ++p, left += step, right += kColumns) {
    TileF::Vec x[kVectors];
    for (int j = 0; j < kVectors; ++j) x[j] = TileF::load(right + j * kWidth).v;
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      const float a = *reinterpret_cast<const float*>(left + i * row);
      for (int j = 0; j < kVectors; ++j) sum[i][j] += a * x[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i)
    for (int j = 0; j < kVectors; ++j) TileF(sum[i][j]).store(c + i * ld + j * kWidth);
}

using BlockFn = void (*)(const char*, int64_t, int64_t, const float*, int64_t, float*, int64_t,
                         bool);
template <int kVectors, int... kHeight>
constexpr std::array<BlockFn, sizeof...(kHeight)> blocks(std::integer_sequence<int, kHeight...>) {
  return {block<kHeight + 1, kVectors>...};
}

void multiply(int64_t m, int64_t n, int64_t k, const Left& left, const void* right, float* c,
              int64_t ldc, bool add) {
  constexpr auto heights = std::make_integer_sequence<int, kRows>();
  static constexpr std::array of_height{blocks<1>(heights), blocks<2>(heights)};
  alignas(64) float edge[kRows * kColumns];
  if (k == 0 && !add)
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
  for (int64_t p = 0; p < k; p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    const bool zero = p == 0 && !add;
    for (int64_t j = 0; j < n; j += kColumns) {
      const float* const panel = static_cast<const float*>(right) + j * k + p * kColumns;
      const int64_t cols = std::min<int64_t>(kColumns, n - j);
      for (int64_t i = 0; i < m; i += kRows) {
        const int64_t rows = std::min<int64_t>(kRows, m - i);
        const char* const x = left.data + i / kRows * left.panel + p * left.step;
        const BlockFn fn = of_height[cols > kWidth][static_cast<std::size_t>(rows - 1)];
        float* const out = c + i * ldc + j;
        if (cols == kColumns || cols == kWidth) {
          fn(x, left.row, left.step, panel, depth, out, ldc, zero);
          continue;
        }
        for (int64_t r = 0; !zero && r < rows; ++r)
          std::copy_n(out + r * ldc, cols, edge + r * kColumns);
        fn(x, left.row, left.step, panel, depth, edge, kColumns, zero);
        for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kColumns, cols, out + r * ldc);
      }
    }
  }
}

template <class T, int kHeight = 1>
void add_rows(int64_t m, const Matrix& x, const Matrix& b, int64_t k, int64_t n, float* c,
              int64_t ldc) {
  if constexpr (kHeight < Microkernel::kFewRows)
    if (m > kHeight) return add_rows<T, kHeight + 1>(m, x, b, k, n, c, ldc);
  // Contiguous columns are read to the end. Of rows, a few are read at a time, as streams.
  constexpr int kStreams = 8;
  const int64_t depth = b.column == 1 ? kStreams : k;
  const T* const from = static_cast<const T*>(b.data);
  alignas(64) float numbers[4 * kRow];
  for (int h = 0; h < kHeight; ++h) load_row(x.at(h, 0).data, x.dtype, 1, k, numbers + h * k);
  for (int64_t p = 0; p < k; p += depth) {
    for (int64_t j = 0; j < n; j += kWidth) {
      TileF::Vec sum[kHeight];
      const auto add = [&](int64_t q, TileF y) {
#pragma GCC unroll 8
        for (int h = 0; h < kHeight; ++h) sum[h] += numbers[h * k + q] * y.v;
      };
      for (int h = 0; h < kHeight; ++h) sum[h] = TileF::load(c + h * ldc + j).v;
      if (b.column == 1) {
#pragma GCC unroll 8
        for (int i = 0; i < kStreams; ++i) add(p + i, widened(from + (p + i) * b.row + j));
      } else {
        for (int64_t q = 0; q < k; q += kWidth) {
          HalfBits rows[kWidth];
#pragma GCC unroll 16
          for (int i = 0; i < kWidth; ++i)
            std::memcpy(&rows[i], from + std::min(j + i, n - 1) * b.column + q, sizeof rows[i]);
          transpose_registers(rows);
#pragma GCC unroll 16
          for (int i = 0; i < kWidth; ++i) add(q + i, widened<T>(rows[i]));
        }
      }
      for (int h = 0; h < kHeight; ++h) TileF(sum[h]).store(c + h * ldc + j);
    }
  }
}

/// Largest number of rows x for which this kernel beats oneDNN on x w^T (AVX-512).
int64_t most_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return 256;
#endif
  return kWidth;
}

}  // namespace

const Microkernel& fma() {
  static constexpr Microkernel kernel = {kWidth == 16  ? "AVX-512 f32"
                                         : kWidth == 8 ? "AVX f32"
                                                       : "f32",
                                         kRows,
                                         kColumns,
                                         left_bytes,
                                         right_bytes,
                                         pack_left,
                                         pack_right,
                                         places_left,
                                         takes_strides,
                                         place_left,
                                         multiply,
                                         {add_rows<half>, add_rows<bfloat16>}};
  return kernel;
}

bool fma_beats_library(int64_t m, int64_t n, int64_t k, bool columns) {
  constexpr int64_t kThin = 32, kFew = 8, kLong = 64;
  if (kWidth == 16) return columns && m >= kFew && m <= most_rows() && std::min(n, k) >= kLong;
  return kWidth == 8 && std::min({m, n, k}) >= kThin;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
