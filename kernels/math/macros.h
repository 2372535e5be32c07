// The base of all formula headers. A formula is a template over V: a number (float in a CUDA
// thread, double or int64_t in a test) or a Tile of numbers on the CPU (kernels/cpu/device/tile.h).
// It uses operators, V(constant), the functions below and where(). A Tile has its own versions of
// them, which argument-dependent lookup finds.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

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
FIRN_SCALAR_1(tan)
FIRN_SCALAR_1(asin)
FIRN_SCALAR_1(acos)
FIRN_SCALAR_1(atan)
FIRN_SCALAR_1(sinh)
FIRN_SCALAR_1(cosh)
FIRN_SCALAR_1(asinh)
FIRN_SCALAR_1(acosh)
FIRN_SCALAR_1(atanh)
FIRN_SCALAR_1(erf)
FIRN_SCALAR_1(erfc)
FIRN_SCALAR_1(log2)
FIRN_SCALAR_1(log10)
FIRN_SCALAR_1(exp2)
FIRN_SCALAR_1(floor)
FIRN_SCALAR_1(ceil)
FIRN_SCALAR_1(trunc)
FIRN_SCALAR_1(rint)
#undef FIRN_SCALAR_1
#define FIRN_SCALAR_2(name)                                                    \
  FIRN_HD inline float name(float a, float b) { return ::name##f(a, b); }      \
  FIRN_HD inline double name(double a, double b) { return ::name(a, b); }
FIRN_SCALAR_2(pow)
FIRN_SCALAR_2(fmod)
FIRN_SCALAR_2(atan2)
FIRN_SCALAR_2(hypot)
#undef FIRN_SCALAR_2
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

FIRN_HD inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
FIRN_HD inline double fma(double a, double b, double c) { return ::fma(a, b, c); }

FIRN_HD inline float abs(float x) { return ::fabsf(x); }
FIRN_HD inline double abs(double x) { return ::fabs(x); }
FIRN_HD constexpr std::int64_t abs(std::int64_t x) { return x < 0 ? -x : x; }

/// The standard normal distribution at x: P(Z <= x), and the density.
template <class V>
struct Normal {
  V cdf, density;
};
/// Uses erfc, which keeps the digits of the left tail. There a relative error in an argument is
/// amplified x^2 times, so the rounding errors of -x/sqrt(2) and x^2 are corrected to first order.
template <class V>
FIRN_HD Normal<V> standard_normal(V x) {
  constexpr V c(0.70710678118654752440);  // 1/sqrt(2) = c + c_rest
  constexpr V c_rest((0.70710678118654752440 - static_cast<double>(c)) - 4.8336466567264567e-17);
  const bool near = abs(x) < V(40);  // beyond it the tail is 0, and the corrections may be NaN
  const V z = -c * x, square = x * x;
  const V z_rest = near ? fma(-c, x, -z) - c_rest * x : V(0);
  const V square_rest = near ? fma(x, x, -square) : V(0);
  const V density =
      V(0.39894228040143267794) * exp(V(-0.5) * square) * (V(1) - V(0.5) * square_rest);
  return {V(0.5) * erfc(z) - V(1.41421356237309504880) * z_rest * density, density};
}

/// 1/sqrt(x), rounded twice.
template <class V>
FIRN_HD V rsqrt(V x) {
  return V(1) / sqrt(x);
}
/// The larger; `a` if they are equal or either is NaN, so a NaN in `a` stays.
template <class V>
FIRN_HD V max(V a, V b) {
  return where(a < b, b, a);
}
/// The larger of two numbers. If one is NaN, it is either; that is one instruction on a GPU.
template <class V>
FIRN_HD V larger(V a, V b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<V, float>) return ::fmaxf(a, b);
#endif
  return max(a, b);
}
/// The smaller; `a` if they are equal or either is NaN, so a NaN in `a` stays.
template <class V>
FIRN_HD V min(V a, V b) {
  return where(b < a, b, a);
}

}  // namespace firn::math
