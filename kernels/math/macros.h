// What every formula header begins with. A formula is a template over V: a number (float in a CUDA
// thread, double or int64_t in a test) or a Tile of numbers on the CPU (kernels/cpu/device/tile.h).
// It uses operators, V(constant), the functions below and where(); a Tile brings its own versions
// of them, which argument-dependent lookup finds.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define FIRN_HD __host__ __device__
#else
#define FIRN_HD
#endif

namespace firn::math {

/// condition ? a : b, for choices that depend on data; both values are computed.
template <class V>
FIRN_HD constexpr V where(bool condition, V a, V b) {
  return condition ? a : b;
}

// clang-format off
#define FIRN_SCALAR_1(name)                                        \
  FIRN_HD inline float name(float x) { return ::name##f(x); }      \
  FIRN_HD inline double name(double x) { return ::name(x); }
FIRN_SCALAR_1(exp)
FIRN_SCALAR_1(expm1)
FIRN_SCALAR_1(log)
FIRN_SCALAR_1(log1p)
FIRN_SCALAR_1(sqrt)
FIRN_SCALAR_1(tanh)
FIRN_SCALAR_1(sin)
FIRN_SCALAR_1(cos)
FIRN_SCALAR_1(erfc)
#undef FIRN_SCALAR_1
// clang-format on

/// a / b rounded down, for a >= 0 and b > 0. Divides 32-bit numbers if both fit: GPUs do that
/// faster.
FIRN_HD constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return ((a | b) >> 32) == 0 ? static_cast<std::int64_t>(static_cast<std::uint32_t>(a) /
                                                          static_cast<std::uint32_t>(b))
                              : a / b;
}
/// a / b rounded up, for b > 0; 0 if a < 0.
FIRN_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a <= 0 ? 0 : floor_div(a + b - 1, b);
}

FIRN_HD inline float pow(float a, float b) { return ::powf(a, b); }
FIRN_HD inline double pow(double a, double b) { return ::pow(a, b); }

FIRN_HD inline float abs(float x) { return ::fabsf(x); }
FIRN_HD inline double abs(double x) { return ::fabs(x); }
FIRN_HD constexpr std::int64_t abs(std::int64_t x) { return x < 0 ? -x : x; }

/// Of the standard normal distribution at x: P(Z <= x), and the density.
template <class V>
struct Normal {
  V cdf, density;
};
/// By erfc, which keeps the left tail's digits.
template <class V>
FIRN_HD Normal<V> standard_normal(V x) {
  return {V(0.5) * erfc(V(-0.70710678118654752440) * x),
          V(0.39894228040143267794) * exp(V(-0.5) * x * x)};
}

/// 1/sqrt(x), rounded twice.
template <class V>
FIRN_HD V rsqrt(V x) {
  return V(1) / sqrt(x);
}
/// The larger; `a` where they are equal or either is NaN, so a NaN in `a` stays.
template <class V>
FIRN_HD V max(V a, V b) {
  return where(a < b, b, a);
}
/// The smaller; `a` where they are equal or either is NaN, so a NaN in `a` stays.
template <class V>
FIRN_HD V min(V a, V b) {
  return where(b < a, b, a);
}

}  // namespace firn::math
