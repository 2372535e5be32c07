// Conversion of rows between storage dtypes and compute types.
#include "kernels/cpu/convert.h"

#include <bit>
#include <cmath>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace firn::kernels::cpu {
namespace {

template <class T>
inline constexpr bool is_16bit = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

/// d rounded to float so that a second rounding, to 16 bits, gives what one rounding would: toward
/// zero, with the last bit set where anything was cut off.
float round_to_odd(double d) {
  const float nearest = static_cast<float>(d);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = nearest;
  if (back == d || d != d) return nearest;
  if (std::fabs(back) > std::fabs(d)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// v as a double that rounds to 16 bits as v does: beyond 2^53, cut off to 53 bits with a sticky
/// one.
double round_to_odd(std::int64_t v) {
  const std::uint64_t u = v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v);
  if (u < (std::uint64_t{1} << 53)) return static_cast<double>(v);
  const double d = static_cast<double>(((u >> 11) | ((u & 0x7ffu) != 0 ? 1u : 0u)) << 11);
  return v < 0 ? -d : d;
}

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (is_16bit<From>) {
    return static_cast<To>(static_cast<float>(v));
  } else if constexpr (is_16bit<To>) {
    if constexpr (std::is_same_v<From, double>) {
      return To(round_to_odd(v));
    } else if constexpr (std::is_same_v<From, std::int64_t>) {
      return To(round_to_odd(round_to_odd(v)));
    } else {
      return To(static_cast<float>(v));
    }
  } else {
    return static_cast<To>(v);
  }
}

/// 16-bit rows with unit stride, by the CPU's own conversions as far as whole vectors go. Returns
/// how many elements were done.
template <class S, class C>
std::int64_t load_vectors(const S*, std::int64_t, C*) {
  return 0;
}
template <class C, class S>
std::int64_t store_vectors(const C*, S*, std::int64_t) {
  return 0;
}
#if defined(__F16C__)
template <>
std::int64_t load_vectors(const half* src, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(h));
  }
  return i;
}
template <>
std::int64_t store_vectors(const float* values, half* dst, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), h);
  }
  return i;
}
#endif

template <class S, class C>
void load(const S* src, std::int64_t stride, std::int64_t n, C* out) {
  if (stride == 1) {
    for (std::int64_t i = load_vectors(src, n, out); i < n; ++i) out[i] = convert<C>(src[i]);
  } else if (stride == 0) {
    const C v = convert<C>(src[0]);
    for (std::int64_t i = 0; i < n; ++i) out[i] = v;
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = convert<C>(src[i * stride]);
  }
}

template <class C, class S>
void store(const C* values, S* dst, std::int64_t stride, std::int64_t n) {
  if (stride == 1) {
    for (std::int64_t i = store_vectors(values, dst, n); i < n; ++i) dst[i] = convert<S>(values[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) dst[i * stride] = convert<S>(values[i]);
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
  visit(dtype, [&]<class S>() { store(values, static_cast<S*>(dst), stride, n); });
}

// clang-format off
#define FIRN_CONVERT(C)                                                                            \
  template const C* load_row(const void*, DType, std::int64_t, std::int64_t, C*);                  \
  template void store_row(const C*, void*, DType, std::int64_t, std::int64_t);
FIRN_CONVERT(float)
FIRN_CONVERT(double)
FIRN_CONVERT(std::int64_t)
#undef FIRN_CONVERT
// clang-format on

}  // namespace firn::kernels::cpu
