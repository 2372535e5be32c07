// Elementary functions of f32 tiles that are computed in f64, in two halves of a tile: tan, the
// inverse circular and hyperbolic functions, sinh, cosh, log10, pow and fmod.
//
// f64 has 29 bits more than f32. So plain series and reductions suffice, nothing overflows on the
// way, and results come within 0.52 ulp; fmod is exact. Operands that are too large for tan's or
// fmod's formula go to the C library lane by lane, and the other lanes keep the formula's results.
#pragma once

#include <utility>

#include "kernels/cpu/device/tile.h"

namespace firn::kernels::cpu::FIRN_ISA::tiles {
namespace detail {

/// Returns the lanes first, first + 1, ... of x in f64.
template <int first, int... I>
TileD widened(TileF x, std::integer_sequence<int, I...>) {
  typedef double Wide __attribute__((vector_size(2 * kTileBytes)));
  const Wide y = __builtin_convertvector(x.v, Wide);
  return TileD(__builtin_shufflevector(y, y, (first + I)...));
}
template <int... I>
TileF rounded(TileD low, TileD high, std::integer_sequence<int, I...>) {
  return TileF(__builtin_convertvector(__builtin_shufflevector(low.v, high.v, I...), TileF::Vec));
}

/// Applies a function of f64 tiles to both halves of the lanes, and rounds its results.
template <class Fn, class... X>
TileF in_f64(Fn f, X... x) {
  constexpr std::make_integer_sequence<int, TileD::size> half{};
  return rounded(f(widened<0>(x, half)...), f(widened<TileD::size>(x, half)...),
                 std::make_integer_sequence<int, TileF::size>());
}

/// c[0] + c[1] x + c[2] x^2 + ...
template <int N>
TileD series(TileD x, const double (&c)[N]) {
  TileD y(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) y = y * x + TileD(c[i]);
  return y;
}

inline constexpr double kPi = 3.14159265358979323846, kLn2 = 0.69314718055994530942;
/// Adding it leaves a whole number, which is in the last bits of the sum.
inline constexpr double kRound = 0x1.8p52;

/// Returns the k for which u = 2^k m, with m in [sqrt(1/2), sqrt 2). u is above 0.
inline TileD::Bits exponent(TileD u) { return (bits(u) - bits(TileD(0.70710678118654752))) >> 52; }
/// Returns u/2^k - 1.
inline TileD fraction(TileD u, TileD::Bits k) {
  return from_bits<double>(bits(u) - (k << 52)) - TileD(1);
}

/// log(2^k (1 + f)). For s = f/(2+f), the series of log((1+s)/(1-s)) errs by 2e-12 s at most.
inline TileD log_of(TileD::Bits k, TileD f) {
  const TileD n = from_bits<double>(bits(TileD(kRound)) + k) - TileD(kRound);
  const TileD s = f / (TileD(2) + f);
  return n * TileD(kLn2) + s * series(s * s, {2, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13});
}
inline TileD log_of(TileD u) {
  const TileD::Bits k = exponent(u);
  return log_of(k, fraction(u, k));
}
/// log(1 + z) for z >= 0, with the digits of z that 1 + z loses.
inline TileD log1p_of(TileD z) {
  const TileD u = TileD(1) + z;
  const TileD::Bits k = exponent(u);
  return log_of(k, where(Mask<double>{k == 0}, z, fraction(u, k)));
}

/// In f32 e^200 is infinite, and e^-200 is 0.
inline constexpr double kInfinite = 200;
/// e^x = scale (1 + rest)
struct Growth {
  TileD scale, rest;
  TileD value() const { return scale * rest + scale; }
};
/// Computes it for |x| <= 200. The series of e^r - 1 errs by 6e-10 r at most.
inline Growth growth(TileD x) {
  const TileD shifted = x * TileD(1.44269504088896341) + TileD(kRound);
  const TileD r = x - (shifted - TileD(kRound)) * TileD(kLn2);
  const TileD p =
      series(r, {1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320});
  return {from_bits<double>((bits(shifted) << 52) + bits(TileD(1))), r * p};
}

/// Returns the angle of the point (d, n), for n and d >= 0 of which one is above 0, and one finite.
/// At most pi/8 of the angle is left to the polynomial, which interpolates at Chebyshev's points
/// (relative error 1e-10).
inline TileD angle(TileD n, TileD d) {
  const Mask<double> steep = n > d;
  const TileD low = where(steep, d, n), high = where(steep, n, d);
  const Mask<double> middle = low > high * TileD(0.41421356237309505);
  const TileD t = where(middle, low - high, low) / where(middle, low + high, high);
  const TileD p =
      series(t * t, {1, -0.333333332792548, 0.199999772586883856, -0.142841511936286139,
                     0.11071365021884794, -0.0862467614524949365, 0.0504813851207974439});
  const TileD y = where(middle, TileD(kPi / 4), TileD(0)) + t * p;
  return where(steep, TileD(kPi / 2) - y, y);
}

/// tan x for |x| < 2^22. Subtracts the nearest multiple n of pi/2, which has two parts; n times the
/// first is exact. With t = tan(r/2) the tangent of the rest r is 2t/(1 - t^2). The polynomial
/// interpolates at Chebyshev's points (relative error 1.2e-10).
inline TileD tangent(TileD x) {
  const TileD shifted = x * TileD(2 / kPi) + TileD(kRound), n = shifted - TileD(kRound);
  const TileD r = (x - n * TileD(0x1.921fb5p0)) - n * TileD(0x1.110b4611a6263p-26);
  const TileD h = TileD(0.5) * r;
  const TileD t =
      h * series(h * h, {1, 0.333333334051437149, 0.13333310079515841, 0.0539802380761143846,
                         0.0216550418195591676, 0.0104015658678300315});
  const TileD sine = TileD(2) * t, cosine = TileD(1) - t * t;  // but for a common factor
  const Mask<double> odd{(bits(shifted) & 1) != 0};
  return where(odd, -cosine, sine) / where(odd, sine, cosine);
}

/// Returns the square root of (1 - x)(1 + x): NaN if |x| > 1.
inline TileD leg(TileD x) { return sqrt((TileD(1) - x) * (TileD(1) + x)); }
/// Returns pi - y if x is negative, or -0.
inline TileD mirrored(TileD y, TileD x) {
  return where(Mask<double>{bits(x) < 0}, TileD(kPi) - y, y);
}

/// Takes (1, 1) for any point of a diagonal, so also for infinities. The origin has the angle of
/// (1, 0).
inline TileD arc_tangent(TileD y, TileD x) {
  const TileD n = abs(y), d = abs(x), one(1);
  const Mask<double> same = n == d;
  const TileD diagonal = where(n > TileD(0), one, TileD(0));
  return with_sign(mirrored(angle(where(same, diagonal, n), where(same, one, d)), x), y);
}

}  // namespace detail

inline TileF tan(TileF x) {
  const Mask<float> near = abs(x) < TileF(0x1p22f);
  const TileF y = detail::in_f64(detail::tangent, where(near, x, TileF(0.f)));
  return detail::library_where(
      !near, y, [](float a) { return std::tan(a); }, x);
}
inline TileF atan2(TileF y, TileF x) { return detail::in_f64(detail::arc_tangent, y, x); }
inline TileF atan(TileF x) {
  return detail::in_f64(
      [](TileD a) { return detail::with_sign(detail::angle(abs(a), TileD(1)), a); }, x);
}
inline TileF asin(TileF x) {
  return detail::in_f64(
      [](TileD a) { return detail::with_sign(detail::angle(abs(a), detail::leg(a)), a); }, x);
}
inline TileF acos(TileF x) {
  return detail::in_f64(
      [](TileD a) { return detail::mirrored(detail::angle(detail::leg(a), abs(a)), a); }, x);
}

inline TileF sinh(TileF x) {
  return detail::in_f64(
      [](TileD a) {
        const detail::Growth g = detail::growth(min(abs(a), TileD(detail::kInfinite)));
        const TileD t = g.scale * g.rest + (g.scale - TileD(1));  // e^|x| - 1
        return detail::with_sign(TileD(0.5) * (t + t / (TileD(1) + t)), a);
      },
      x);
}
inline TileF cosh(TileF x) {
  return detail::in_f64(
      [](TileD a) {
        const TileD e = detail::growth(min(abs(a), TileD(detail::kInfinite))).value();
        return TileD(0.5) * (e + TileD(1) / e);
      },
      x);
}

/// log(a + sqrt(1 + a^2)) for a = |x|, with the digits of a small a.
inline TileF asinh(TileF x) {
  const TileF infinity(std::numeric_limits<float>::infinity());
  const TileF y = detail::in_f64(
      [](TileD v) {
        const TileD a = min(abs(v), TileD(1e39)), one(1);
        return detail::with_sign(detail::log1p_of(a + a * a / (one + sqrt(one + a * a))), v);
      },
      x);
  return where(abs(x) < infinity, y, x);
}
inline TileF acosh(TileF x) {
  const TileF infinity(std::numeric_limits<float>::infinity());
  const TileF y = detail::in_f64(
      [](TileD v) {
        const TileD t = v - TileD(1);
        return detail::log1p_of(t + sqrt(t * (v + TileD(1))));
      },
      x);
  const TileF none(std::numeric_limits<float>::quiet_NaN());
  return where(x >= TileF(1.f), where(x < infinity, y, x), none);
}
/// log((1 + a)/(1 - a))/2 for a = |x|, with the digits of a small a.
inline TileF atanh(TileF x) {
  const TileF a = abs(x), one(1.f);
  const Mask<float> inside = a < one;
  const TileF y = detail::in_f64(
      [](TileD v) { return TileD(0.5) * detail::log1p_of(TileD(2) * v / (TileD(1) - v)); },
      where(inside, a, TileF(0.f)));
  const TileF infinity(std::numeric_limits<float>::infinity());
  const TileF none(std::numeric_limits<float>::quiet_NaN());
  return detail::with_sign(where(inside, y, where(a == one, infinity, none)), x);
}

inline TileF log10(TileF x) {
  const TileF y =
      detail::in_f64([](TileD u) { return detail::log_of(u) * TileD(0.43429448190325182765); }, x);
  return detail::log_edges(x, y);
}
/// Computes |a|^b from its logarithm, and then IEEE 754's signs and special cases. The C library is
/// faster than two lanes of f64.
inline TileF pow(TileF a, TileF b) {
  if constexpr (TileD::size == 2)
    return detail::library([](float x, float y) { return std::pow(x, y); }, a, b);
  constexpr float kMost = std::numeric_limits<float>::max();
  const TileF infinity(std::numeric_limits<float>::infinity()), zero(0.f), one(1.f);
  const TileF size = detail::flushed(abs(a)), half = TileF(0.5f) * b;
  TileF y = detail::in_f64(
      [](TileD u, TileD z) {
        const TileD x = z * detail::log_of(u), most(detail::kInfinite);
        return detail::growth(min(max(x, -most), most)).value();
      },
      size, min(max(b, TileF(-kMost)), TileF(kMost)));  // infinity would give NaN for the base 1
  const TileF opposite = where(b < zero, where(size == zero, infinity, zero), b);
  const TileF limit = where(size == size, where(b > zero, size, opposite), size);
  y = where((size > zero) & (size < infinity), y, limit);
  const Mask<float> whole = rint(b) == b, odd = whole & (rint(half) != half);
  y = where(odd, detail::with_sign(y, a), y);
  const Mask<float> none = (a < zero) & (size < infinity) & !whole;
  y = where(none, TileF(std::numeric_limits<float>::quiet_NaN()), y);
  return where((b == zero) | (a == one), one, y);
}

/// The remainder is exact: below 2^27 f64 never rounds a/b up to a whole number, and it holds b
/// times the quotient. A remainder by less than 2^-102 may be subnormal.
inline TileF fmod(TileF a, TileF b) {
  const TileF n = abs(a), d = abs(b), infinity(std::numeric_limits<float>::infinity());
  const Mask<float> near = (n < d * TileF(0x1p27f)) & (d >= TileF(0x1p-102f)) & (d < infinity);
  const TileF y = detail::in_f64(
      [](TileD x, TileD z) {
        const TileD q = x / z, whole = (q + TileD(0x1p52)) - TileD(0x1p52);
        return x - where(whole > q, whole - TileD(1), whole) * z;
      },
      where(near, n, TileF(0.f)), where(near, d, TileF(1.f)));
  return detail::library_where(
      !near, detail::with_sign(y, a), [](float x, float z) { return std::fmod(x, z); }, a, b);
}

}  // namespace firn::kernels::cpu::FIRN_ISA::tiles
