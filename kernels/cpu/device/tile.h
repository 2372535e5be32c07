// V on the CPU: a Tile holds one hardware register of numbers, and a Mask the outcome of a
// comparison. Both are GCC/Clang vector types with plain operators that return by value. So a
// formula over V compiles to straight vector code for AVX-512, AVX, SSE or NEON alike.
//
// Elementary functions: f32 comes within 3 ulp of the exact result (7 for the tail of
// standard_normal; tests/kernels measures it), NaN stays NaN, infinities give the limits. Those
// that compute f32 in f64 are in device/tile_functions.h. f64 calls the C library per lane. It is
// given 0 for a subnormal number: kernels flush such numbers to 0, and the library would compute
// with a part of their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/math/macros.h"
#include "kernels/settings/isa.h"

// This is a namespace of its own: argument-dependent lookup finds where(), exp(), ... of tiles
// here, and they do not clash with the kernels of these names.
namespace firn::kernels::cpu::FIRN_ISA::tiles {

#if defined(__AVX512F__)
inline constexpr int kTileBytes = 64;
#elif defined(__AVX__)
inline constexpr int kTileBytes = 32;
#else
inline constexpr int kTileBytes = 16;
#endif

template <class T>
struct Tile;

/// The result of comparing two tiles. A lane has all bits set if the comparison holds, else none.
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
#if defined(__AVX512F__)
  /// Returns the mask of the first n >= 0 lanes.
  static auto first(std::int64_t n) {
    using Set = std::conditional_t<size == 16, std::uint16_t, std::uint8_t>;
    return static_cast<Set>(n < size ? (1u << n) - 1 : ~0u);
  }
#endif
  /// Loads the first n lanes; the others are 0.
  static Tile load(const T* p, std::int64_t n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return Tile(_mm512_maskz_loadu_ps(first(n), p));
    if constexpr (sizeof(T) == 8) return Tile(_mm512_maskz_loadu_pd(first(n), p));
#endif
    alignas(kTileBytes) T lanes[size] = {};
    for (int i = 0; i < size && i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  /// Loads the first n > 0 lanes; the others repeat the first of them. So a formula divides by 0 in
  /// no lane unless it does so for an element.
  static Tile load_repeating(const T* p, std::int64_t n) {
    alignas(kTileBytes) T lanes[size];
    for (int i = 0; i < size; ++i) lanes[i] = p[i < n ? i : 0];
    return load(lanes);
  }
  void store(T* p) const { std::memcpy(p, &v, sizeof(Vec)); }
  void store(T* p, std::int64_t n) const {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return _mm512_mask_storeu_ps(p, first(n), v);
    if constexpr (sizeof(T) == 8) return _mm512_mask_storeu_pd(p, first(n), v);
#endif
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
/// Returns the first if they are equal or one is NaN.
template <class T>
Tile<T> max(Tile<T> a, Tile<T> b) {
#if defined(__AVX512F__)
  // In these cases the instruction returns its second operand. The masked forms avoid GCC 12's
  // warning about an undefined register.
  if constexpr (sizeof(T) == 4) return Tile<T>(_mm512_maskz_max_ps(0xffff, b.v, a.v));
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return Tile<T>(_mm256_max_ps(b.v, a.v));
#endif
  return where(a < b, b, a);
}
template <class T>
Tile<T> min(Tile<T> a, Tile<T> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return Tile<T>(_mm512_maskz_min_ps(0xffff, b.v, a.v));
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return Tile<T>(_mm256_min_ps(b.v, a.v));
#endif
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

/// Applies a scalar function to every lane.
template <class T, class Fn, class... More>
Tile<T> per_lane(Fn f, Tile<T> x, More... more) {
  Tile<T> y;
  for (int i = 0; i < Tile<T>::size; ++i) y.v[i] = f(x.v[i], more.v[i]...);
  return y;
}

/// True if any lane of the comparison holds.
template <class T>
bool any(Mask<T> m) {
  typename Mask<T>::Word all = 0;
  for (int i = 0; i < Tile<T>::size; ++i) all |= m.v[i];
  return all != 0;
}

/// ln 2 in two parts. The first has few bits, so that its product with a small integer is exact.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440054690583e-4f;

/// x = n ln 2 + r with |r| <= ln(2)/2.
struct Reduced {
  TileF n, r;
};
inline Reduced reduce(TileF x) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it leaves a rounded integer
  const TileF n = (x * TileF(1.44269504088896341f) + TileF(kRound)) - TileF(kRound);
  return {n, (x - n * TileF(kLn2High)) - n * TileF(kLn2Low)};
}

/// e^r - 1 = r + r^2 q(r), accurate near 0; q is the minimax polynomial, with an error of 3e-9 e^r.
inline TileF expm1_of(Reduced x) {
  TileF q(0.0013814481603);
  q = q * x.r + TileF(0.0083687447673);
  q = q * x.r + TileF(0.041668391538);
  q = q * x.r + TileF(0.16666520404);
  q = q * x.r + TileF(0.49999993430);
  return q * (x.r * x.r) + x.r;
}

inline TileF::Bits integers(TileF n) { return __builtin_convertvector(n.v, TileF::Bits); }
/// 2^n for n in [-126, 127].
inline TileF power_of_two(TileF::Bits n) { return from_bits<float>((n + 127) << 23); }

inline TileF clamp_exponent(TileF x) { return min(max(x, TileF(-104.f)), TileF(89.f)); }

inline TileF exp_of(Reduced x) {
  const TileF p = expm1_of(x);
#if defined(__AVX512F__)
  // The masked form avoids GCC 12's warning about an undefined register.
  return TileF(_mm512_maskz_scalef_ps(0xffff, (p + TileF(1.f)).v, x.n.v));
#else
  const TileF::Bits n = integers(x.n), half = n >> 1;  // 2^n alone may overflow or be subnormal
  const TileF s = power_of_two(half);
  return (p * s + s) * power_of_two(n - half);
#endif
}

/// Returns a/b to an ulp or two, for b of ordinary size.
inline TileF quotient(TileF a, TileF b) {
#if defined(__AVX512F__)
  const TileF y(_mm512_maskz_rcp14_ps(0xffff, b.v));
  const TileF q = a * y;
  return q + y * (a - q * b);
#else
  return a / b;
#endif
}

/// a^2 = high + low exactly, low being a small part of it.
struct Square {
  TileF high, low;
};
inline Square square(TileF a) {
#if defined(__AVX512F__)
  const TileF high = a * a;
  return {high, TileF(_mm512_maskz_fmsub_ps(0xffff, a.v, a.v, high.v))};
#else
  const TileF h = from_bits<float>(bits(a) & ~0xfff);  // 12 bits: h^2 is exact
  return {h * h, (a - h) * (a + h)};
#endif
}

/// Returns the magnitude of a with the sign of b, zeros included.
template <class T>
Tile<T> with_sign(Tile<T> a, Tile<T> b) {
  constexpr auto kSign = std::numeric_limits<typename Mask<T>::Word>::min();
  return from_bits<T>((bits(a) & ~kSign) | (bits(b) & kSign));
}

}  // namespace detail

template <class T>
Tile<T> abs(Tile<T> x) {
  return detail::from_bits<T>(detail::bits(x) & std::numeric_limits<typename Mask<T>::Word>::max());
}

namespace detail {

/// Returns 0 for subnormal numbers.
template <class T>
Tile<T> flushed(Tile<T> x) {
  const Tile<T> least(std::numeric_limits<T>::min());
  return where(abs(x) < least, with_sign(Tile<T>(0), x), x);
}

/// Calls a function of the C library in every lane, with 0 for subnormal numbers.
template <class T, class Fn, class... More>
Tile<T> library(Fn f, Tile<T> x, More... more) {
  return per_lane(f, flushed(x), flushed(more)...);
}

/// Replaces the lanes of y where `rare` holds by f(x...), a function of the C library.
template <class Fn, class... X>
TileF library_where(Mask<float> rare, TileF y, Fn f, X... x) {
  if (any(rare)) [[unlikely]] {
    [&](auto... z) {
      for (int i = 0; i < TileF::size; ++i)
        if (rare.v[i] != 0) y.v[i] = f(z.v[i]...);
    }(flushed(x)...);
  }
  return y;
}

}  // namespace detail

/// Rounds to whole numbers, half to even. Adding 2^23 (2^52 in f64) leaves no room for a fraction;
/// numbers beyond it have none.
template <class T>
Tile<T> rint(Tile<T> x) {
  const Tile<T> room(sizeof(T) == 4 ? 0x1p23 : 0x1p52);
  const Tile<T> a = abs(x);
  return detail::with_sign(where(a < room, (a + room) - room, a), x);
}
template <class T>
Tile<T> floor(Tile<T> x) {
  const Tile<T> n = rint(x);
  return where(n > x, n - Tile<T>(1), n);
}
template <class T>
Tile<T> ceil(Tile<T> x) {
  return -floor(-x);
}
template <class T>
Tile<T> trunc(Tile<T> x) {
  return detail::with_sign(floor(abs(x)), x);
}

template <class T>
Tile<T> sqrt(Tile<T> x) {
  return detail::per_lane([](T a) { return std::sqrt(a); }, x);  // becomes one instruction
}

namespace detail {

/// x = 2^k m with m in [sqrt(1/2), sqrt 2), and log m = f - (h - w): f = m - 1, h = f^2/2.
struct Logarithm {
  TileF k, f, h, w;
};
/// Computes log m = log((1+s)/(1-s)), for s = f/(2+f), by its series in s. The series is arranged
/// around f - f^2/2, which is exact to the last bits near m = 1.
inline Logarithm split_log(TileF x) {
  const Mask<float> tiny = x < TileF(std::numeric_limits<float>::min());
  const TileF scaled = where(tiny, x * TileF(33554432.f), x);  // 2^25: subnormals become normal
  const TileF::Bits b = bits(scaled) & 0x7fffffff;             // log_edges() handles negative x
  const TileF::Bits e = (b - bits(TileF(0.70710678f))) >> 23;
  const TileF f = from_bits<float>(b - (e << 23)) - TileF(1.f);
  const TileF s = f / (TileF(2.f) + f);
  const TileF s2 = s * s;
  TileF r(2.0 / 11);
  r = r * s2 + TileF(2.0 / 9);
  r = r * s2 + TileF(2.0 / 7);
  r = r * s2 + TileF(2.0 / 5);
  r = r * s2 + TileF(2.0 / 3);
  const TileF h = TileF(0.5f) * f * f;
  const TileF n(__builtin_convertvector(e, TileF::Vec));
  return {n - where(tiny, TileF(25.f), TileF(0.f)), f, h, s * (h + r * s2)};
}

/// Returns y, a logarithm of x, corrected at 0, infinity, NaN and negative x.
inline TileF log_edges(TileF x, TileF y) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const TileF edge =
      where(x == TileF(0.f), TileF(-kInf),
            where(x < TileF(0.f), TileF(std::numeric_limits<float>::quiet_NaN()), x));
  return where((x > TileF(0.f)) & (x < TileF(kInf)), y, edge);
}

}  // namespace detail

inline TileF log(TileF x) {
  const detail::Logarithm l = detail::split_log(x);
  const TileF y =
      l.k * TileF(detail::kLn2High) + (l.f - (l.h - (l.w + l.k * TileF(detail::kLn2Low))));
  return detail::log_edges(x, y);
}
inline TileF log2(TileF x) {
  const detail::Logarithm l = detail::split_log(x);
  return detail::log_edges(x, l.k + (l.f - (l.h - l.w)) * TileF(1.44269504088896341f));
}

namespace detail {

/// sin(x + quarter_turns pi/2). Subtracts the nearest multiple of pi/2 in f64 and evaluates the
/// series of sin or cos. Lanes for which f64 is not enough call the C library.
inline TileF sine(TileF given, int quarter_turns) {
  const Mask<float> near = abs(given) < TileF(1e5f);
  const TileF x = where(near, given, TileF(0.f));
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
  return library_where(
      !near, from_bits<float>(bits(y) ^ ((q & 2) << 30)),
      [quarter_turns](float a) { return quarter_turns == 0 ? std::sin(a) : std::cos(a); }, given);
}

}  // namespace detail

inline TileF sin(TileF x) { return where(x == TileF(0.f), x, detail::sine(x, 0)); }  // sin -0 = -0
inline TileF cos(TileF x) { return detail::sine(x, 1); }
inline TileF exp(TileF x) { return detail::exp_of(detail::reduce(detail::clamp_exponent(x))); }

/// Is exact for whole x.
inline TileF exp2(TileF x) {
  const TileF near = min(max(x, TileF(-150.f)), TileF(129.f));
  const TileF n = rint(near);
  return detail::exp_of({n, (near - n) * TileF(0.69314718055994531f)});
}

inline TileF expm1(TileF x) {
  const detail::Reduced e = detail::reduce(detail::clamp_exponent(x));
  // Beyond e^40 the 1 is lost in rounding; up to there 2^n is representable.
  const TileF n = min(max(e.n, TileF(-58.f)), TileF(58.f));
  const TileF s = detail::power_of_two(detail::integers(n));
  const TileF y =
      where(x > TileF(40.f), detail::exp_of(e), detail::expm1_of(e) * s + (s - TileF(1.f)));
  return detail::with_sign(y, x);
}

/// log(u) x/(u - 1) with u = 1 + x as rounded: the quotient cancels the rounding of u.
inline TileF log1p(TileF x) {
  const TileF one(1.f);
  const TileF u = one + x;
  const Mask<float> tiny = u == one, infinite = u == TileF(std::numeric_limits<float>::infinity());
  const TileF d = where(tiny | infinite, one, u - one);
  const TileF y = log(u) * (x / d);
  return where(tiny | infinite, where(tiny, x, u), y);
}

inline TileF tanh(TileF x) {
  const TileF e = expm1(TileF(-2.f) * abs(x));
  return detail::with_sign(e / (TileF(2.f) + e), x);
}

namespace detail {

/// Returns P(Z <= -a) e^(a^2/2) of the standard normal distribution as N(a)/D(a), for 0 <= a <=
/// 14.36. N and D are the minimax polynomials (relative error 5.8e-9).
inline TileF scaled_tail(TileF a) {
  TileF n(0.004108738007635568);
  n = n * a + TileF(0.04058229359707579);
  n = n * a + TileF(0.18308415858507474);
  n = n * a + TileF(0.4380913217574297);
  n = n * a + TileF(0.5000000029154238);
  TileF d(0.010298957401073191);
  d = d * a + TileF(0.10173124130631746);
  d = d * a + TileF(0.46907202034136736);
  d = d * a + TileF(1.2018762882631262);
  d = d * a + TileF(1.6740676196218225);
  d = d * a + TileF(1.f);
  return quotient(n, d);
}

/// Returns e^(-c a^2), where c is 1 or 1/2. a^2 is exact, to keep the digits of the tail.
inline TileF bell(TileF a, float c) {
  const Square s = square(a);
  Reduced x = reduce(TileF(-c) * s.high);
  x.r -= TileF(c) * s.low;
  return exp_of(x);
}

/// erfc(a) for a >= 0.
inline TileF erfc_tail(TileF a) {
  const TileF x = min(a, TileF(10.15f));
  return TileF(2.f) * bell(x, 1.f) * scaled_tail(x * TileF(1.41421356237309505f));
}

}  // namespace detail

inline math::Normal<TileF> standard_normal(TileF x) {
  const TileF a = min(abs(x), TileF(14.35f));
  const TileF e = detail::bell(a, 0.5f);
  const TileF tail = e * detail::scaled_tail(a);
  return {where(x < TileF(0.f), tail, TileF(1.f) - tail), TileF(0.3989422804014327) * e};
}

inline TileF erfc(TileF x) {
  const TileF tail = detail::erfc_tail(abs(x));
  return where(x < TileF(0.f), TileF(2.f) - tail, tail);
}

/// Computes the series near 0, where 1 - erfc cancels.
inline TileF erf(TileF x) {
  const TileF a = abs(x), a2 = a * a;
  TileF p(1.0 / 685440);
  p = p * a2 + TileF(-1.0 / 75600);
  p = p * a2 + TileF(1.0 / 9360);
  p = p * a2 + TileF(-1.0 / 1320);
  p = p * a2 + TileF(1.0 / 216);
  p = p * a2 + TileF(-1.0 / 42);
  p = p * a2 + TileF(1.0 / 10);
  p = p * a2 + TileF(-1.0 / 3);
  const TileF near = TileF(1.12837916709551257) * (a + a * (a2 * p));
  return detail::with_sign(where(a < TileF(0.65f), near, TileF(1.f) - detail::erfc_tail(a)), x);
}

/// Computes in f64, where squares of f32 numbers are exact and none overflows.
inline TileF hypot(TileF a, TileF b) {
  const TileF y = detail::per_lane(
      [](float p, float q) {
        const double c = p, d = q;
        return static_cast<float>(std::sqrt(c * c + d * d));
      },
      a, b);
  const TileF infinity(std::numeric_limits<float>::infinity());
  return where((abs(a) == infinity) | (abs(b) == infinity), infinity, y);  // NaN included
}

// clang-format off
#define FIRN_TILE_1(name) \
  inline TileD name(TileD x) { return detail::library([](double a) { return std::name(a); }, x); }
FIRN_TILE_1(exp)
FIRN_TILE_1(exp2)
FIRN_TILE_1(expm1)
FIRN_TILE_1(log)
FIRN_TILE_1(log2)
FIRN_TILE_1(log10)
FIRN_TILE_1(log1p)
FIRN_TILE_1(tanh)
FIRN_TILE_1(sin)
FIRN_TILE_1(cos)
FIRN_TILE_1(tan)
FIRN_TILE_1(asin)
FIRN_TILE_1(acos)
FIRN_TILE_1(atan)
FIRN_TILE_1(sinh)
FIRN_TILE_1(cosh)
FIRN_TILE_1(asinh)
FIRN_TILE_1(acosh)
FIRN_TILE_1(atanh)
FIRN_TILE_1(erf)
FIRN_TILE_1(erfc)
#undef FIRN_TILE_1
#define FIRN_TILE_2(name)                                                             \
  inline TileD name(TileD a, TileD b) {                                               \
    return detail::library([](double x, double y) { return std::name(x, y); }, a, b); \
  }
FIRN_TILE_2(pow)
FIRN_TILE_2(fmod)
FIRN_TILE_2(atan2)
FIRN_TILE_2(hypot)
#undef FIRN_TILE_2
// clang-format on
inline math::Normal<TileD> standard_normal(TileD x) {
  return {detail::per_lane([](double a) { return math::standard_normal(a).cdf; }, x),
          detail::per_lane([](double a) { return math::standard_normal(a).density; }, x)};
}

template <class T>
Tile<T> rsqrt(Tile<T> x) {
  return Tile<T>(1) / sqrt(x);
}

/// Bit i is set if the comparison holds in lane i.
template <class T>
unsigned bits_of(Mask<T> m) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask(std::bit_cast<__m512i>(m.v));
  if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask(std::bit_cast<__m512i>(m.v));
#endif
  unsigned bits = 0;
  for (int i = 0; i < Tile<T>::size; ++i) bits |= (m.v[i] != 0 ? 1u : 0u) << i;
  return bits;
}

/// Inverse of bits_of(): lane i is set if bit i is.
template <class T>
Mask<T> mask_of(unsigned bits) {
  using Word = typename Mask<T>::Word;
  typename Mask<T>::Vec lane{};
  for (int i = 0; i < Tile<T>::size; ++i) lane[i] = Word{1} << i;
  return {(lane & static_cast<Word>(bits)) != 0};
}

}  // namespace firn::kernels::cpu::FIRN_ISA::tiles

namespace firn::kernels::cpu::FIRN_ISA {
using tiles::Mask;
using tiles::Tile;
using tiles::TileD;
using tiles::TileF;
}  // namespace firn::kernels::cpu::FIRN_ISA
