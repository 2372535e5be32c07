// Rows of any dtype as spans of a compute type, and back. A compute type C is float (for f16, bf16,
// f32 and the floats of 8 bits), double (for f64) or int64_t (for the integers and bool). Every
// dtype converts to and from every C. A kernel works on pieces of at most kRow elements:
//
//   alignas(64) float buffer[kRow];
//   const float* x = load_row(src, dtype, stride, n, buffer);  // or src itself
//   ... compute y[0 .. n) ...
//   store_row(y, dst, dtype, stride, n);
//
// Conversions to floating dtypes round once, to nearest even. Floating to integer truncates toward
// zero, clamps to the range, and turns NaN into 0. A wider integer keeps its low bits. To bool is
// "not equal 0"; from bool is 0 or 1.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "firn/dtype.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Number of elements of a piece: 4 KB in f32, so that the few buffers of a kernel stay in L1.
inline constexpr std::int64_t kRow = 1024;

/// Returns n elements of `dtype`, `stride` elements apart (0 repeats one), as C. That is `src`
/// itself if dtype is C's own and stride is 1 (or n is 1); else it fills buffer[0 .. n) and returns
/// it.
template <class C>
const C* load_row(const void* src, DType dtype, std::int64_t stride, std::int64_t n, C* buffer);

/// Writes values[0 .. n) to n elements of `dtype`, `stride` apart. Does nothing if `values` is
/// `dst`.
template <class C>
void store_row(const C* values, void* dst, DType dtype, std::int64_t stride, std::int64_t n);

/// Calls store_row for each row of a matrix. Rows of `values` are `ld` apart, and those of dst are
/// `row` elements apart.
template <class C>
void store_rows(const C* values, std::int64_t ld, void* dst, DType dtype, std::int64_t row,
                std::int64_t stride, std::int64_t rows, std::int64_t n);

/// Returns the place for a row before store_row: `dst` itself if dtype is C's own and stride is 1,
/// else `buffer`.
template <class C>
C* row_target(void* dst, DType dtype, std::int64_t stride, C* buffer) {
  return dtype == dtype_of<C> && stride == 1 ? static_cast<C*>(dst) : buffer;
}

/// Returns p advanced by `elements` of `dtype`.
inline const void* advance(const void* p, DType dtype, std::int64_t elements) {
  return static_cast<const char*>(p) + elements * static_cast<std::int64_t>(size_of(dtype));
}
inline void* advance(void* p, DType dtype, std::int64_t elements) {
  return static_cast<char*>(p) + elements * static_cast<std::int64_t>(size_of(dtype));
}

// clang-format off
#define FIRN_CONVERT(C)                                                                            \
  extern template const C* load_row(const void*, DType, std::int64_t, std::int64_t, C*);           \
  extern template void store_row(const C*, void*, DType, std::int64_t, std::int64_t);              \
  extern template void store_rows(const C*, std::int64_t, void*, DType, std::int64_t,              \
                                  std::int64_t, std::int64_t, std::int64_t);
FIRN_CONVERT(float)
FIRN_CONVERT(double)
FIRN_CONVERT(std::int64_t)
#undef FIRN_CONVERT
// clang-format on

/// The bits of as many 16-bit numbers as a tile has of f32.
typedef std::uint16_t HalfBits __attribute__((vector_size(tiles::kTileBytes / 2)));

/// Returns numbers of T, half or bfloat16, as f32.
template <class T>
TileF widened(HalfBits x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return tiles::detail::from_bits<float>(__builtin_convertvector(x, TileF::Bits) << 16);
#if defined(__AVX512F__)
  return TileF(_mm512_maskz_cvtph_ps(0xffff, std::bit_cast<__m256i>(x)));  // masked for GCC 12
#elif defined(__F16C__)
  return TileF(_mm256_cvtph_ps(std::bit_cast<__m128i>(x)));
#else
  TileF y;
  for (int i = 0; i < TileF::size; ++i) y.v[i] = static_cast<float>(half::from_bits(x[i]));
  return y;
#endif
}
inline TileF widened(const float* numbers) { return TileF::load(numbers); }
template <class T>
TileF widened(const T* numbers) {
  HalfBits x;
  std::memcpy(&x, numbers, sizeof x);
  return widened<T>(x);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
