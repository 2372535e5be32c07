// Conversion of rows between storage dtypes and compute types.
#include "kernels/cpu/device/convert.h"

#include <type_traits>

#include "kernels/math/integer.h"
#include "kernels/math/rounding.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace firn::kernels::cpu {
namespace {

template <class T>
inline constexpr bool is_16bit = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (is_16bit<From>) {
    return convert<To>(static_cast<float>(v));
  } else if constexpr (is_16bit<To>) {
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
