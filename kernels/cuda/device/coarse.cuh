// The numbers in which kernels evaluate formulas whose results are rounded to 16 bits.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/element.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {

/// A float with arithmetic of its own. The functions that make a kernel wait for arithmetic, not
/// for memory, are within about 2^-18 of their size. f16 rounds by up to 2^-11, bf16 by up to
/// 2^-8. Any other function is float's. Subnormal results of exp are 0.
struct Coarse {
  float value;

  Coarse() = default;
  template <class N>
  FIRN_HD explicit constexpr Coarse(N number) : value(static_cast<float>(number)) {}
  FIRN_HD explicit constexpr operator float() const { return value; }

  FIRN_HD friend Coarse operator+(Coarse a, Coarse b) { return Coarse(a.value + b.value); }
  FIRN_HD friend Coarse operator-(Coarse a, Coarse b) { return Coarse(a.value - b.value); }
  FIRN_HD friend Coarse operator*(Coarse a, Coarse b) { return Coarse(a.value * b.value); }
  FIRN_HD friend Coarse operator/(Coarse a, Coarse b) { return Coarse(a.value / b.value); }
  FIRN_HD friend Coarse operator-(Coarse a) { return Coarse(-a.value); }
  FIRN_HD friend bool operator==(Coarse a, Coarse b) { return a.value == b.value; }
  FIRN_HD friend bool operator!=(Coarse a, Coarse b) { return a.value != b.value; }
  FIRN_HD friend bool operator<(Coarse a, Coarse b) { return a.value < b.value; }
  FIRN_HD friend bool operator>(Coarse a, Coarse b) { return a.value > b.value; }
  FIRN_HD friend bool operator<=(Coarse a, Coarse b) { return a.value <= b.value; }
  FIRN_HD friend bool operator>=(Coarse a, Coarse b) { return a.value >= b.value; }
};

/// Type that formulas take for elements of type T: Coarse for 16 bits, else the compute type.
template <class T>
using FormulaOf = std::conditional_t<sizeof(T) == 2, Coarse, ComputeOf<T>>;

// clang-format off
#define FIRN_AS_FLOAT(name) \
  FIRN_HD inline Coarse name(Coarse x) { return Coarse(math::name(x.value)); }
FIRN_AS_FLOAT(abs)
FIRN_AS_FLOAT(log)
FIRN_AS_FLOAT(sqrt)
FIRN_AS_FLOAT(tanh)
FIRN_AS_FLOAT(sin)
FIRN_AS_FLOAT(cos)
FIRN_AS_FLOAT(tan)
FIRN_AS_FLOAT(asin)
FIRN_AS_FLOAT(acos)
FIRN_AS_FLOAT(atan)
FIRN_AS_FLOAT(sinh)
FIRN_AS_FLOAT(cosh)
FIRN_AS_FLOAT(asinh)
FIRN_AS_FLOAT(acosh)
FIRN_AS_FLOAT(atanh)
FIRN_AS_FLOAT(log10)
FIRN_AS_FLOAT(log1p)
FIRN_AS_FLOAT(log2)
FIRN_AS_FLOAT(erf)
FIRN_AS_FLOAT(floor)
FIRN_AS_FLOAT(ceil)
FIRN_AS_FLOAT(trunc)
FIRN_AS_FLOAT(rint)
#undef FIRN_AS_FLOAT
// clang-format on
FIRN_HD inline Coarse pow(Coarse a, Coarse b) { return Coarse(math::pow(a.value, b.value)); }

/// c[0] + c[1] x + ... + c[n-1] x^(n-1)
template <int n>
FIRN_HD constexpr float polynomial(const float (&c)[n], float x) {
  float sum = c[n - 1];
  for (int k = n - 2; k >= 0; --k) sum = sum * x + c[k];
  return sum;
}

/// e^x = 2^(x log2 e), within 2^-22 + |x| 2^-23.
FIRN_HD inline Coarse exp(Coarse x) { return Coarse(gpu::exp2(1.44269504088896340736f * x.value)); }

FIRN_HD inline Coarse exp2(Coarse x) { return Coarse(gpu::exp2(x.value)); }

/// e^x - 1. Near 0, where the difference cancels, it is the Taylor series, within 2^-18.
FIRN_HD inline Coarse expm1(Coarse x) {
  constexpr float c[] = {1.f, 1.f / 2, 1.f / 6, 1.f / 24, 1.f / 120};
  return math::where(abs(x) < Coarse(0.3f), x * Coarse(polynomial(c, x.value)), exp(x) - Coarse(1));
}

/// 1/(1 + e^-x)
FIRN_HD inline Coarse logistic(Coarse x) {
  const Coarse e = exp(-abs(x));
  return math::where(x >= Coarse(0), Coarse(1), e) *
         Coarse(gpu::reciprocal(1.f + e.value));  // 1 to 2, or NaN
}

/// log(1 + e^x). log(1 + t)/t, 0 <= t <= 1, as a polynomial within 2^-19.5 (Remez).
FIRN_HD inline Coarse log_one_plus_exp(Coarse x) {
  constexpr float c[] = {0.9999987316f, -0.4998696587f,  0.3310944937f, -0.2350385701f,
                         0.1492237567f, -0.06640166647f, 0.0141409731f};
  const Coarse t = exp(-abs(x));
  return math::max(x, Coarse(0)) + Coarse(t.value * polynomial(c, t.value));
}

/// P(Z <= -a) e^(a^2/2) of the standard normal distribution, a >= 0: a polynomial in 1/(1 + p a)
/// within 2^-21 for a <= 14 (Remez). Further out e^(-a^2/2) is 0 in every dtype.
FIRN_HD inline float scaled_tail(float a) {
  constexpr float p = 0.35f;
  constexpr float c[] = {-2.731549693e-5f, 0.1402703428f, 0.1333551019f,  0.1559614679f,
                         -0.01702339817f,  0.2406407765f, -0.2021192617f, 0.04894244016f};
  return polynomial(c, gpu::reciprocal(1.f + p * a));
}

/// P(Z <= x) and the density of the standard normal distribution. The square of a 16-bit number is
/// exact in f32.
FIRN_HD inline math::Normal<Coarse> standard_normal(Coarse x) {
  const float e = gpu::exp2(-0.72134752044448170368f * (x.value * x.value));  // e^(-x^2/2)
  const float tail = e * scaled_tail(abs(x).value);
  return {math::where(x > Coarse(0), Coarse(1.f - tail), Coarse(tail)),
          Coarse(0.39894228040143267794f * e)};
}

/// 1 - erf(x) = 2 P(Z <= -x sqrt 2)
FIRN_HD inline Coarse erfc(Coarse x) {
  const float e = gpu::exp2(-1.44269504088896340736f * (x.value * x.value));  // e^(-x^2)
  // Far out the polynomial is below 0. Adding 0 turns -0 into 0.
  const float tail = 2.f * e * scaled_tail(1.41421356237309504880f * abs(x).value) + 0.f;
  return math::where(x > Coarse(0), Coarse(tail), Coarse(2.f - tail));
}

}  // namespace firn::kernels::cuda
