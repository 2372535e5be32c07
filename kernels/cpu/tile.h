// V on the CPU: a Tile holds one hardware register of numbers, and a Mask the outcome of a
// comparison. Both are GCC/Clang vector types behind plain operators that return by value, so a
// formula over V compiles to straight vector code for AVX-512, AVX, SSE or NEON alike.
//
// Elementary functions: f32 comes within 3 ulp of the exact result (7 for erfc;
// tests/kernels measures it), NaN stays NaN, infinities go where they should. f64 calls the C
// library per lane.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

// A namespace of its own: argument-dependent lookup finds where(), exp(), ... of tiles here, and
// they do not meet the kernels of the same names.
namespace firn::kernels::cpu::tiles {

#if defined(__AVX512F__)
inline constexpr int kTileBytes = 64;
#elif defined(__AVX__)
inline constexpr int kTileBytes = 32;
#else
inline constexpr int kTileBytes = 16;
#endif

template <class T>
struct Tile;

/// What comparing two tiles gives: all bits of a lane, or none.
template <class T>
struct Mask {
  using Word = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  typedef Word Vec __attribute__((vector_size(kTileBytes)));
  Vec v;

  friend Mask operator&(Mask a, Mask b) { return {a.v & b.v}; }
  friend Mask operator|(Mask a, Mask b) { return {a.v | b.v}; }
  friend Mask operator!(Mask a) { return {~a.v}; }
};

template <class T>
struct Tile {
  static constexpr int size = kTileBytes / static_cast<int>(sizeof(T));
  typedef T Vec __attribute__((vector_size(kTileBytes)));
  using Word = typename Mask<T>::Word;
  using Bits = typename Mask<T>::Vec;
  Vec v;

  Tile() = default;
  explicit Tile(double s) : v(static_cast<T>(s) - Vec{}) {}
  explicit Tile(float s) : v(static_cast<T>(s) - Vec{}) {}
  explicit Tile(int s) : v(static_cast<T>(s) - Vec{}) {}
  explicit Tile(Vec x) : v(x) {}

  static Tile load(const T* p) {
    Tile t;
    std::memcpy(&t.v, p, sizeof(Vec));
    return t;
  }
  /// The first n lanes; the others are 0.
  static Tile load(const T* p, std::int64_t n) {
    alignas(kTileBytes) T lanes[size] = {};
    for (int i = 0; i < size && i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  void store(T* p) const { std::memcpy(p, &v, sizeof(Vec)); }
  void store(T* p, std::int64_t n) const {
    alignas(kTileBytes) T lanes[size];
    store(lanes);
    for (int i = 0; i < size && i < n; ++i) p[i] = lanes[i];
  }
  T operator[](int i) const { return v[i]; }

  friend Tile operator+(Tile a, Tile b) { return Tile(a.v + b.v); }
  friend Tile operator-(Tile a, Tile b) { return Tile(a.v - b.v); }
  friend Tile operator*(Tile a, Tile b) { return Tile(a.v * b.v); }
  friend Tile operator/(Tile a, Tile b) { return Tile(a.v / b.v); }
  friend Tile operator-(Tile a) { return Tile(-a.v); }
  Tile& operator+=(Tile b) { return *this = *this + b; }
  Tile& operator-=(Tile b) { return *this = *this - b; }
  Tile& operator*=(Tile b) { return *this = *this * b; }
  friend Mask<T> operator==(Tile a, Tile b) { return {a.v == b.v}; }
  friend Mask<T> operator!=(Tile a, Tile b) { return {a.v != b.v}; }
  friend Mask<T> operator<(Tile a, Tile b) { return {a.v < b.v}; }
  friend Mask<T> operator<=(Tile a, Tile b) { return {a.v <= b.v}; }
  friend Mask<T> operator>(Tile a, Tile b) { return {a.v > b.v}; }
  friend Mask<T> operator>=(Tile a, Tile b) { return {a.v >= b.v}; }
};

using TileF = Tile<float>;
using TileD = Tile<double>;

template <class T>
Tile<T> where(Mask<T> m, Tile<T> a, Tile<T> b) {
  return Tile<T>(m.v ? a.v : b.v);
}
template <class T>
Tile<T> max(Tile<T> a, Tile<T> b) {
  return where(a < b, b, a);
}
template <class T>
Tile<T> min(Tile<T> a, Tile<T> b) {
  return where(b < a, b, a);
}

namespace detail {

template <class T>
typename Tile<T>::Bits bits(Tile<T> x) {
  return std::bit_cast<typename Tile<T>::Bits>(x.v);
}
template <class T>
Tile<T> from_bits(typename Tile<T>::Bits b) {
  return Tile<T>(std::bit_cast<typename Tile<T>::Vec>(b));
}

/// f of every lane by a scalar function.
template <class T, class Fn, class... More>
Tile<T> per_lane(Fn f, Tile<T> x, More... more) {
  Tile<T> y;
  for (int i = 0; i < Tile<T>::size; ++i) y.v[i] = f(x.v[i], more.v[i]...);
  return y;
}

/// Whether any lane of the comparison holds.
template <class T>
bool any(Mask<T> m) {
  typename Mask<T>::Word all = 0;
  for (int i = 0; i < Tile<T>::size; ++i) all |= m.v[i];
  return all != 0;
}

/// ln 2 in two parts, the first with few bits, so that a small integer times it is exact.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440054690583e-4f;

/// x = n ln 2 + r with |r| <= ln(2)/2, and p = e^r - 1 by its series: accurate near 0.
struct ExpParts {
  TileF::Bits n;
  TileF p;
};
inline ExpParts exp_parts(TileF x) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves a rounded integer
  const TileF shifted = x * TileF(1.44269504088896341f) + TileF(kRound);
  const TileF n = shifted - TileF(kRound);
  const TileF r = (x - n * TileF(kLn2High)) - n * TileF(kLn2Low);
  TileF q(1.0 / 5040);
  q = q * r + TileF(1.0 / 720);
  q = q * r + TileF(1.0 / 120);
  q = q * r + TileF(1.0 / 24);
  q = q * r + TileF(1.0 / 6);
  q = q * r + TileF(0.5);
  return {bits(shifted) - bits(TileF(kRound)), q * (r * r) + r};
}
/// 2^n for n in [-126, 127].
inline TileF power_of_two(TileF::Bits n) { return from_bits<float>((n + 127) << 23); }

inline TileF clamp_exponent(TileF x) { return min(max(x, TileF(-104.f)), TileF(89.f)); }

inline TileF scale_exp(ExpParts e) {
#if defined(__AVX512F__)
  const TileF::Vec n = __builtin_convertvector(e.n, TileF::Vec);
  // The masked form: GCC 12 warns of the other's undefined register.
  return TileF(_mm512_maskz_scalef_ps(0xffff, (e.p + TileF(1.f)).v, n));
#else
  const TileF::Bits half = e.n >> 1;  // in two steps: 2^n alone may overflow or be subnormal
  const TileF s = power_of_two(half);
  return (e.p * s + s) * power_of_two(e.n - half);
#endif
}

}  // namespace detail

inline TileF abs(TileF x) { return detail::from_bits<float>(detail::bits(x) & 0x7fffffff); }
inline TileF sqrt(TileF x) {
  return detail::per_lane([](float a) { return std::sqrt(a); }, x);  // becomes one instruction
}

/// x = 2^e m with m in [sqrt(1/2), sqrt 2); log m = log((1+s)/(1-s)) by its series in s = f/(2+f),
/// f = m - 1, arranged around f - f^2/2, which is exact to the last bits near m = 1.
inline TileF log(TileF x) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Mask<float> tiny = x < TileF(std::numeric_limits<float>::min());
  const TileF scaled = where(tiny, x * TileF(33554432.f), x);  // 2^25: subnormals become normal
  const TileF::Bits bits = detail::bits(scaled) & 0x7fffffff;  // negative x comes out below
  const TileF::Bits e = (bits - detail::bits(TileF(0.70710678f))) >> 23;
  const TileF f = detail::from_bits<float>(bits - (e << 23)) - TileF(1.f);
  const TileF s = f / (TileF(2.f) + f);
  const TileF s2 = s * s;
  TileF r(2.0 / 11);
  r = r * s2 + TileF(2.0 / 9);
  r = r * s2 + TileF(2.0 / 7);
  r = r * s2 + TileF(2.0 / 5);
  r = r * s2 + TileF(2.0 / 3);
  const TileF h = TileF(0.5f) * f * f;
  const TileF n(__builtin_convertvector(e, TileF::Vec));
  const TileF k = n - where(tiny, TileF(25.f), TileF(0.f));
  const TileF y =
      k * TileF(detail::kLn2High) + (f - (h - (s * (h + r * s2) + k * TileF(detail::kLn2Low))));
  const TileF edge =
      where(x == TileF(0.f), TileF(-kInf),
            where(x < TileF(0.f), TileF(std::numeric_limits<float>::quiet_NaN()), x));
  return where((x > TileF(0.f)) & (x < TileF(kInf)), y, edge);
}

namespace detail {

/// sin(x + quarter_turns pi/2). The nearest multiple of pi/2 is taken off in f64; what is left goes
/// into the series of sin or cos. Lanes for which f64 is not enough make the tile call the C
/// library.
inline TileF sine(TileF x, int quarter_turns) {
  if (any(!(abs(x) < TileF(1e5f)))) {
    return quarter_turns == 0 ? per_lane([](float a) { return std::sin(a); }, x)
                              : per_lane([](float a) { return std::cos(a); }, x);
  }
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves a rounded integer
  const TileF shifted = x * TileF(0.636619772367581343f) + TileF(kRound);
  const TileF n = shifted - TileF(kRound);
  TileF r;
  for (int i = 0; i < TileF::size; ++i) {
    r.v[i] = static_cast<float>(x.v[i] - static_cast<double>(n.v[i]) * 1.57079632679489661923);
  }
  const TileF r2 = r * r;
  TileF s(1.0 / 362880);
  s = s * r2 + TileF(-1.0 / 5040);
  s = s * r2 + TileF(1.0 / 120);
  s = s * r2 + TileF(-1.0 / 6);
  s = s * (r2 * r) + r;
  TileF c(-1.0 / 3628800);
  c = c * r2 + TileF(1.0 / 40320);
  c = c * r2 + TileF(-1.0 / 720);
  c = c * r2 + TileF(1.0 / 24);
  c = c * (r2 * r2) + (TileF(1.f) - TileF(0.5f) * r2);
  const TileF::Bits q = bits(shifted) + quarter_turns;
  const TileF y = where(Mask<float>{(q & 1) != 0}, c, s);
  return from_bits<float>(bits(y) ^ ((q & 2) << 30));
}

}  // namespace detail

inline TileF sin(TileF x) { return detail::sine(x, 0); }
inline TileF cos(TileF x) { return detail::sine(x, 1); }
inline TileF exp(TileF x) {
  return detail::scale_exp(detail::exp_parts(detail::clamp_exponent(x)));
}

inline TileF expm1(TileF x) {
  const detail::ExpParts e = detail::exp_parts(detail::clamp_exponent(x));
  // Beyond e^40 the 1 is lost in rounding; up to there 2^n is representable.
  const TileF::Bits n = e.n > 58 ? TileF::Bits{} + 58 : (e.n < -58 ? TileF::Bits{} - 58 : e.n);
  const TileF s = detail::power_of_two(n);
  return where(x > TileF(40.f), detail::scale_exp(e), e.p * s + (s - TileF(1.f)));
}

/// log(u) x/(u - 1) with u = 1 + x as rounded: the quotient takes the rounding of u back out.
inline TileF log1p(TileF x) {
  const TileF one(1.f);
  const TileF u = one + x;
  const TileF d = u - one;
  const TileF y = log(u) * (x / d);
  const TileF tiny_or_infinite = where(u == one, x, u);
  return where((u == one) | (u == TileF(std::numeric_limits<float>::infinity())), tiny_or_infinite,
               y);
}

inline TileF tanh(TileF x) {
  const TileF e = expm1(TileF(-2.f) * abs(x));
  const TileF t = -e / (TileF(2.f) + e);
  constexpr std::int32_t kSign = std::numeric_limits<std::int32_t>::min();
  return detail::from_bits<float>(detail::bits(t) | (detail::bits(x) & kSign));
}

/// erfc(x) = e^(-x^2) t g(t), t = 1/(1 + 0.4 x), for x >= 0, and 2 - erfc(-x) below. g is a
/// polynomial in t - 0.6, interpolated at Chebyshev nodes (relative error 1.9e-8); e^(-x^2) is
/// corrected for the rounding of x^2.
inline TileF erfc(TileF x) {
  const TileF a = min(abs(x), TileF(10.15f));
  const TileF t = TileF(1.f) / (TileF(1.f) + TileF(0.4f) * a);
  const TileF u = t - TileF(0.6f);
  TileF g(-0.03317984309f);
  g = g * u + TileF(0.03780304313f);
  g = g * u + TileF(0.06939146879f);
  g = g * u + TileF(-0.08843531227f);
  g = g * u + TileF(-0.1728618177f);
  g = g * u + TileF(0.1105084316f);
  g = g * u + TileF(0.6075144218f);
  g = g * u + TileF(0.9003029072f);
  g = g * u + TileF(0.8060792675f);
  g = g * u + TileF(0.4938124588f);
  // a = high + rest with 12 bits in high: high^2 is exact, a^2 - high^2 = rest (a + high) < 0.05.
  const TileF high = detail::from_bits<float>(detail::bits(a) & ~0xfff);
  const TileF d = (high - a) * (high + a);
  TileF e(1.0 / 24);
  e = e * d + TileF(1.0 / 6);
  e = e * d + TileF(0.5f);
  e = (e * d + TileF(1.f)) * d;
  const TileF square = exp(-(high * high));
  const TileF y = g * t * (square * e + square);
  return where(x < TileF(0.f), TileF(2.f) - y, y);
}

inline TileF pow(TileF a, TileF b) {
  return detail::per_lane([](float x, float y) { return std::pow(x, y); }, a, b);
}

// clang-format off
#define FIRN_TILE_D(name) \
  inline TileD name(TileD x) { return detail::per_lane([](double a) { return std::name(a); }, x); }
FIRN_TILE_D(abs)
FIRN_TILE_D(sqrt)
FIRN_TILE_D(exp)
FIRN_TILE_D(expm1)
FIRN_TILE_D(log)
FIRN_TILE_D(log1p)
FIRN_TILE_D(tanh)
FIRN_TILE_D(sin)
FIRN_TILE_D(cos)
FIRN_TILE_D(erfc)
#undef FIRN_TILE_D
// clang-format on
inline TileD pow(TileD a, TileD b) {
  return detail::per_lane([](double x, double y) { return std::pow(x, y); }, a, b);
}

template <class T>
Tile<T> rsqrt(Tile<T> x) {
  return Tile<T>(1) / sqrt(x);
}

}  // namespace firn::kernels::cpu::tiles

namespace firn::kernels::cpu {
using tiles::Mask;
using tiles::Tile;
using tiles::TileD;
using tiles::TileF;
}  // namespace firn::kernels::cpu
