// Conversion of rows between storage dtypes and compute types.
#include "kernels/cpu/device/convert.h"

#include <cstring>
#include <type_traits>

#include "kernels/math/integer.h"
#include "kernels/math/rounding.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <class T>
inline constexpr bool is_small_float =
    std::is_same_v<T, half> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float8_e4m3> ||
    std::is_same_v<T, float8_e5m2>;

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (is_small_float<From>) {
    return convert<To>(static_cast<float>(v));
  } else if constexpr (is_small_float<To>) {
    if constexpr (std::is_same_v<From, double>) {
      return To(math::round_to_odd(v));
    } else if constexpr (std::is_same_v<From, std::int64_t>) {
      return To(math::round_to_odd(math::round_to_odd(v)));
    } else {
      return To(static_cast<float>(v));
    }
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return math::to_integer<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

/// Convert 16-bit rows of unit stride by vector instructions, as far as whole vectors go. Return
/// the number of elements converted.
template <class S, class C>
std::int64_t load_vectors(const S* src, std::int64_t n, C* out) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<C, float> && is_small_float<S> && sizeof(S) == sizeof(half))
    for (; i + TileF::size <= n; i += TileF::size) widened(src + i).store(out + i);
  return i;
}
template <class C, class S>
std::int64_t store_vectors(const C*, S*, std::int64_t) {
  return 0;
}

#if defined(__AVX512F__)
// The masked forms avoid GCC 12's warning about an undefined register.
/// Converts the elements up to the first pair of lines with a subnormal number, which the
/// conversion instruction flushes. Returns their number. The CPU must have the instruction (isa.h).
__attribute__((target("avx512bf16"))) std::int64_t convert_lines(const float* values, bfloat16* dst,
                                                                 std::int64_t n) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000), fraction = _mm512_set1_epi32(0x7fffff);
  const auto has_subnormal = [&](__m512i bits) {
    return _mm512_mask_test_epi32_mask(_mm512_testn_epi32_mask(bits, exponent), bits, fraction);
  };
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 x = _mm512_loadu_ps(values + i), y = _mm512_loadu_ps(values + i + 16);
    if (_kor_mask16(has_subnormal(_mm512_castps_si512(x)), has_subnormal(_mm512_castps_si512(y))))
      break;
    const __m512bh both = _mm512_maskz_cvtne2ps_pbh(~__mmask32{0}, y, x);
    std::memcpy(static_cast<void*>(dst + i), &both, sizeof both);
  }
  return i;
}

/// Rounds as bfloat16(float) does: to nearest even, and NaN stays a quiet NaN.
template <>
std::int64_t store_vectors(const float* values, bfloat16* dst, std::int64_t n) {
  const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
  const __m512i quiet = _mm512_set1_epi32(0x40);
  std::int64_t i = has_avx512_bf16() ? convert_lines(values, dst, n) : 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(values + i);
    const __m512i bits = _mm512_castps_si512(x), upper = _mm512_maskz_srli_epi32(0xffff, bits, 16);
    const __m512i even = _mm512_add_epi32(_mm512_and_si512(upper, one), half);
    const __m512i near = _mm512_maskz_srli_epi32(0xffff, _mm512_add_epi32(bits, even), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i out = _mm512_mask_or_epi32(near, nan, upper, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i),
                        _mm512_maskz_cvtepi32_epi16(0xffff, out));
  }
  return i;
}
#endif
#if defined(__F16C__)
template <>
std::int64_t store_vectors(const float* values, half* dst, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m256i h =
        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), h);
  }
#endif
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), h);
  }
  return i;
}
#endif

// These are functions of their own. If they were inlined, all dtypes would share a frame that costs
// more than a short row.
template <class S, class C>
[[gnu::noinline]] void load(const S* src, std::int64_t stride, std::int64_t n, C* out) {
  if (stride == 1) {
    for (std::int64_t i = load_vectors(src, n, out); i < n; ++i) out[i] = convert<C>(src[i]);
  } else if (stride == 0) {
    const C v = convert<C>(src[0]);
    for (std::int64_t i = 0; i < n; ++i) out[i] = v;
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = convert<C>(src[i * stride]);
  }
}

/// The rows of `values` are `ld` apart, and those of `dst` are `row` apart.
template <class C, class S>
[[gnu::noinline]] void store(const C* values, std::int64_t ld, S* dst, std::int64_t row,
                             std::int64_t stride, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, values += ld, dst += row) {
    if (stride == 1) {
      for (std::int64_t i = store_vectors(values, dst, n); i < n; ++i)
        dst[i] = convert<S>(values[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) dst[i * stride] = convert<S>(values[i]);
    }
  }
}

}  // namespace

template <class C>
const C* load_row(const void* src, DType dtype, std::int64_t stride, std::int64_t n, C* buffer) {
  if (dtype == dtype_of<C> && (stride == 1 || n <= 1)) return static_cast<const C*>(src);
  visit(dtype, [&]<class S>() { load(static_cast<const S*>(src), stride, n, buffer); });
  return buffer;
}

template <class C>
void store_row(const C* values, void* dst, DType dtype, std::int64_t stride, std::int64_t n) {
  if (values == dst) return;
  visit(dtype, [&]<class S>() { store(values, n, static_cast<S*>(dst), n, stride, 1, n); });
}

template <class C>
void store_rows(const C* values, std::int64_t ld, void* dst, DType dtype, std::int64_t row,
                std::int64_t stride, std::int64_t rows, std::int64_t n) {
  visit(dtype, [&]<class S>() { store(values, ld, static_cast<S*>(dst), row, stride, rows, n); });
}

// clang-format off
#define FIRN_CONVERT(C)                                                                            \
  template const C* load_row(const void*, DType, std::int64_t, std::int64_t, C*);                  \
  template void store_row(const C*, void*, DType, std::int64_t, std::int64_t);                     \
  template void store_rows(const C*, std::int64_t, void*, DType, std::int64_t, std::int64_t,       \
                           std::int64_t, std::int64_t);
FIRN_CONVERT(float)
FIRN_CONVERT(double)
FIRN_CONVERT(std::int64_t)
#undef FIRN_CONVERT
// clang-format on

}  // namespace firn::kernels::cpu::FIRN_ISA
