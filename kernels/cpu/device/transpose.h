// Transposes square blocks in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/device/streaming.h"
#include "kernels/cpu/device/tile.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Number of rows and columns of a square: a row fills a register, but has at most 16 elements.
template <class T>
inline constexpr int kSquare = std::min(16, tiles::kTileBytes / static_cast<int>(sizeof(T)));

namespace detail {

/// Exchanges bit `S` of the rows' index with bit `S` of the lanes' index. This is one stage of
/// Eklundh's algorithm ("A fast computer method for matrix transposing", 1972).
template <int S, class Row, int... Lane>
void exchange(Row* rows, std::integer_sequence<int, Lane...>) {
  constexpr int n = sizeof...(Lane);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if (i & S) continue;
    const Row a = rows[i], b = rows[i + S];
    rows[i] = __builtin_shufflevector(a, b, (Lane & S ? n + Lane - S : Lane)...);
    rows[i + S] = __builtin_shufflevector(a, b, (Lane & S ? n + Lane : Lane + S)...);
  }
}

}  // namespace detail

/// Transposes n registers of n lanes, at most 16.
template <class Row, int n>
void transpose_registers(Row (&rows)[n]) {
  constexpr auto lanes = std::make_integer_sequence<int, n>();
  if constexpr (n >= 2) detail::exchange<1>(rows, lanes);
  if constexpr (n >= 4) detail::exchange<2>(rows, lanes);
  if constexpr (n >= 8) detail::exchange<4>(rows, lanes);
  if constexpr (n >= 16) detail::exchange<8>(rows, lanes);
}

/// to[i*to_row + j] = from[j*from_row + i] for i and j in [0, kSquare). With `kPast`, stores bypass
/// the caches: rows of squares must be whole lines, and the caller calls end_stream().
template <bool kPast, class T>
void transpose_square(const T* from, std::int64_t from_row, T* to, std::int64_t to_row) {
  constexpr int n = kSquare<T>;
  typedef T Row __attribute__((vector_size(n * sizeof(T))));
  Row rows[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) std::memcpy(&rows[i], from + i * from_row, sizeof(Row));
  transpose_registers(rows);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if constexpr (kPast) {
      stream_bytes(&rows[i], to + i * to_row, sizeof(Row));
    } else {
      std::memcpy(to + i * to_row, &rows[i], sizeof(Row));
    }
  }
}

/// to[i*to_row + j] = from[j*from_row + i] for i in [0, height) and j in [0, width).
template <bool kPast = false, class T>
void transpose_block(const T* from, std::int64_t from_row, T* to, std::int64_t to_row,
                     std::int64_t height, std::int64_t width) {
  constexpr int n = kSquare<T>;
  for (std::int64_t j = 0; j < width; j += n) {
    for (std::int64_t i = 0; i < height; i += n) {
      const T* const source = from + j * from_row + i;
      T* const target = to + i * to_row + j;
      if (i + n <= height && j + n <= width) {
        transpose_square<kPast>(source, from_row, target, to_row);
        continue;
      }
      for (std::int64_t p = 0; p < std::min<std::int64_t>(n, height - i); ++p)
        for (std::int64_t q = 0; q < std::min<std::int64_t>(n, width - j); ++q)
          target[p * to_row + q] = source[q * from_row + p];
    }
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
