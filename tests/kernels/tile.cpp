// Accuracy of the elementary functions of tiles, in units in the last place of f32, against the C
// library in long double.
#include "kernels/cpu/device/tile_functions.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/cpu/device/parallel.h"
#include "support/catch.h"

namespace {

using firn::kernels::cpu::FlushSubnormals;
using firn::kernels::cpu::FIRN_ISA::TileF;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kSmallest = std::numeric_limits<float>::min();  // normal

double ulps(float got, long double exact) {
  const float want = static_cast<float>(exact);
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isinf(want)) return got == want ? 0 : HUGE_VAL;
  // Below the normal numbers results may be zero.
  if (std::fabs(exact) < kSmallest) return std::fabs(got - want) <= kSmallest ? 0 : HUGE_VAL;
  int exponent;
  std::frexp(static_cast<double>(want), &exponent);
  return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - 24));
}

struct Worst {
  double ulp = 0;
  float at = 0;
};

/// Over [low, high] evenly, and over magnitudes from the smallest normal number up.
template <class Fn, class Exact>
Worst worst(Fn fn, Exact exact, float low, float high) {
  const FlushSubnormals guard;
  Worst w;
  const auto test = [&](float x) {
    if (!(x >= low && x <= high)) return;
    const double u = ulps(fn(TileF(x))[TileF::size - 1], exact(static_cast<long double>(x)));
    if (!(u <= w.ulp)) w = {u, x};
  };
  for (int i = 0; i <= 40000; ++i) test(low + (high - low) * (static_cast<float>(i) / 40000.f));
  for (double m = kSmallest; m < 3e38; m *= 1.003) {
    test(static_cast<float>(m));
    test(static_cast<float>(-m));
  }
  return w;
}

template <class Fn, class Exact>
void check(const char* name, Fn fn, Exact exact, float low, float high, double limit) {
  const Worst w = worst(fn, exact, low, high);
  INFO(name << ": " << w.ulp << " ulp at " << w.at);
  CHECK(w.ulp <= limit);
  for (float x : {kInf, -kInf, std::nanf(""), 0.f, -0.f, 1.f, -1.f, 3e38f, -3e38f}) {
    const double u = ulps(fn(TileF(x))[0], exact(static_cast<long double>(x)));
    INFO(name << "(" << x << "): " << u << " ulp");
    CHECK(u <= limit);
  }
}

}  // namespace

namespace {

/// Numbers at which functions of two operands have special cases.
std::vector<float> edges() {
  std::vector<float> x;
  for (const float m : {0.f,
                        kSmallest,
                        0x1p-102f,
                        0x1.fffffep-103f,
                        1e-10f,
                        0.5f,
                        0x1.fffffep-1f,
                        1.f,
                        0x1.000002p0f,
                        2.f,
                        2.5f,
                        3.f,
                        128.f,
                        149.f,
                        8388607.5f,
                        8388609.f,
                        0x1.fffffep23f,
                        0x1p24f,
                        0x1p27f,
                        0x1.000002p27f,
                        1e20f,
                        0x1.fffffep127f,
                        kInf,
                        std::nanf("")}) {
    x.push_back(m), x.push_back(-m);
  }
  return x;
}

/// Any bit pattern that is no subnormal number, whole numbers, and numbers of ordinary size.
struct Pairs {
  std::uint32_t state = 1;
  std::uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 8; }
  float any() {
    const float x = std::bit_cast<float>(next() << 16 ^ next());
    return std::fabs(x) < kSmallest ? 0.f : x;
  }
  float near(float most) { return most * (static_cast<float>(next()) / 0x1p23f - 1); }
  std::array<float, 2> at(int i) {
    if (i % 4 == 0) return {any(), any()};
    if (i % 4 == 1) return {any(), near(9)};
    if (i % 4 == 2) return {near(9), std::rint(near(40))};
    return {near(4) + 4.5f, near(40)};
  }
};

/// Calls test(a, b) for pairs of all kinds.
template <class Test>
void for_pairs(Test test) {
  for (const float a : edges())
    for (const float b : edges()) test(a, b);
  Pairs pairs;
  for (int i = 0; i < 60000; ++i) {
    const auto [a, b] = pairs.at(i);
    test(a, b);
  }
}

/// Checks the values of a function, and the signs of its zeros.
template <class Fn, class Exact>
void check_pairs(const char* name, Fn fn, Exact exact, double limit) {
  const FlushSubnormals guard;
  for_pairs([&](float a, float b) {
    const float got = fn(TileF(a), TileF(b))[TileF::size - 1];
    const long double want = exact(static_cast<long double>(a), static_cast<long double>(b));
    const double u = ulps(got, want);
    const bool same_sign = std::isnan(got) || std::signbit(got) == std::signbit(want);
    if (u <= limit && same_sign) return;
    FAIL_CHECK(name << "(" << a << ", " << b << ") = " << got << ": " << u << " ulp");
  });
}

}  // namespace

#define FIRN_CHECK_TILE(name, low, high, limit)                                                \
  check(                                                                                       \
      #name, [](TileF x) { return name(x); }, [](long double x) { return std::name(x); }, low, \
      high, limit)

TEST_CASE("elementary functions of tiles are accurate to a few ulp, and right at the ends",
          "[host]") {
  FIRN_CHECK_TILE(sqrt, 0, 100, 0.5001);
  FIRN_CHECK_TILE(exp, -110, 95, 1.5);
  FIRN_CHECK_TILE(expm1, -110, 95, 2);
  FIRN_CHECK_TILE(expm1, -1, 1, 2);
  FIRN_CHECK_TILE(log, 0, kInf, 1);
  FIRN_CHECK_TILE(log, 0.5, 2, 1);
  FIRN_CHECK_TILE(log1p, -0.9999f, 3, 3);
  FIRN_CHECK_TILE(log1p, -1, kInf, 3);
  FIRN_CHECK_TILE(log2, 0, kInf, 2);
  FIRN_CHECK_TILE(log2, 0.5, 2, 2);
  FIRN_CHECK_TILE(exp2, -150, 130, 1.5);
  FIRN_CHECK_TILE(erf, -4, 4, 3);
  FIRN_CHECK_TILE(erf, -0.7f, 0.7f, 3);
  FIRN_CHECK_TILE(erfc, -4, 9.3f, 7);
  FIRN_CHECK_TILE(tanh, -12, 12, 3);
  FIRN_CHECK_TILE(sin, -10, 10, 2);
  FIRN_CHECK_TILE(sin, -2e5f, 2e5f, 2);
  FIRN_CHECK_TILE(cos, -10, 10, 2);
  FIRN_CHECK_TILE(cos, -2e5f, 2e5f, 2);
  FIRN_CHECK_TILE(tan, -10, 10, 0.52);
  FIRN_CHECK_TILE(tan, -0x1p22f, 0x1p22f, 0.52);
  FIRN_CHECK_TILE(tan, -kInf, kInf, 2);  // the C library's
  FIRN_CHECK_TILE(asin, -1, 1, 0.52);
  FIRN_CHECK_TILE(acos, -1, 1, 0.52);
  FIRN_CHECK_TILE(atan, -kInf, kInf, 0.52);
  FIRN_CHECK_TILE(atan, -3, 3, 0.52);
  FIRN_CHECK_TILE(sinh, -90, 90, 0.52);
  FIRN_CHECK_TILE(sinh, -2, 2, 0.52);
  FIRN_CHECK_TILE(cosh, -90, 90, 0.52);
  FIRN_CHECK_TILE(cosh, -2, 2, 0.52);
  FIRN_CHECK_TILE(asinh, -kInf, kInf, 0.52);
  FIRN_CHECK_TILE(asinh, -3, 3, 0.52);
  FIRN_CHECK_TILE(acosh, 1, kInf, 0.52);
  FIRN_CHECK_TILE(acosh, 1, 3, 0.52);
  FIRN_CHECK_TILE(atanh, -1, 1, 0.52);
  FIRN_CHECK_TILE(log10, 0, kInf, 0.52);
  FIRN_CHECK_TILE(log10, 0.5, 2, 0.52);
  check(
      "standard_normal.cdf", [](TileF x) { return standard_normal(x).cdf; },
      [](long double x) { return 0.5L * std::erfc(-x / std::sqrt(2.0L)); }, -12, 7, 7);
  check(
      "standard_normal.density", [](TileF x) { return standard_normal(x).density; },
      [](long double x) {
        return std::exp(-0.5L * x * x) / std::sqrt(2 * std::numbers::pi_v<long double>);
      },
      -12, 12, 3);
}

TEST_CASE("tiles round to whole numbers exactly", "[host]") {
  for (const float limit : {3.f, 1e3f, 1e8f}) {
    FIRN_CHECK_TILE(rint, -limit, limit, 0);
    FIRN_CHECK_TILE(floor, -limit, limit, 0);
    FIRN_CHECK_TILE(ceil, -limit, limit, 0);
    FIRN_CHECK_TILE(trunc, -limit, limit, 0);
  }
  using firn::kernels::cpu::FIRN_ISA::TileD;
  for (const double x : {0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, -0.0, 4503599627370495.5,
                         -9007199254740993.0, 1e300, -1e-300}) {
    CAPTURE(x);
    const auto same = [&](TileD got, double want) {
      CHECK(got[0] == want);
      CHECK(std::signbit(got[TileD::size - 1]) == std::signbit(want));
    };
    same(rint(TileD(x)), std::rint(x));
    same(floor(TileD(x)), std::floor(x));
    same(ceil(TileD(x)), std::ceil(x));
    same(trunc(TileD(x)), std::trunc(x));
  }
}

TEST_CASE("hypot of tiles neither overflows nor loses small operands", "[host]") {
  const FlushSubnormals guard;
  const auto at = [](float a, float b) { return hypot(TileF(a), TileF(b))[0]; };
  CHECK(at(3, -4) == 5);
  CHECK(at(3e38f, 1e38f) == std::hypot(3e38f, 1e38f));
  CHECK(at(1e-30f, 2e-30f) == std::hypot(1e-30f, 2e-30f));
  CHECK(at(-kInf, std::nanf("")) == kInf);
  CHECK(at(std::nanf(""), kInf) == kInf);
  CHECK(std::isnan(at(std::nanf(""), 1)));
}

TEST_CASE("pow and atan2 of tiles are accurate, and IEEE 754's in every special case", "[host]") {
  check_pairs(
      "pow", [](TileF a, TileF b) { return pow(a, b); },
      [](long double a, long double b) { return std::pow(a, b); },
      TileF::size == 4 ? 1 : 0.52);  // the C library's, or the formula's
  check_pairs(
      "atan2", [](TileF a, TileF b) { return atan2(a, b); },
      [](long double a, long double b) { return std::atan2(a, b); }, 0.52);
}

TEST_CASE("fmod of tiles has the C library's bits", "[host]") {
  const FlushSubnormals guard;
  const auto test = [](float a, float b) {
    const float got = fmod(TileF(a), TileF(b))[TileF::size - 1], want = std::fmod(a, b);
    if (std::isnan(want) ? !std::isnan(got)
                         : std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(want))
      FAIL_CHECK("fmod(" << a << ", " << b << ") = " << got << ", not " << want);
  };
  for_pairs(test);
  Pairs pairs;
  for (int i = 0; i < 30000; ++i) {  // near multiples
    const float b = pairs.near(3), k = std::rint(pairs.near(0x1p27f));
    for (const float to : {-kInf, 0.f, kInf}) test(std::nextafter(k * b, to), b);
    test(static_cast<float>(pairs.next()), static_cast<float>(pairs.next() % 999 + 1));
  }
}

TEST_CASE("a lane of a tile has the same bits whatever the other lanes hold", "[host]") {
  const FlushSubnormals guard;
  const auto check_lanes = [](const char* name, auto fn) {
    Pairs pairs;
    const std::vector<float> special = edges();
    for (int i = 0; i < 3000; ++i) {
      TileF a, b;
      for (int l = 0; l < TileF::size; ++l) {
        const auto [x, z] = pairs.at(i + l);
        a.v[l] = pairs.next() % 8 == 0 ? special[pairs.next() % special.size()] : x;
        b.v[l] = z;
      }
      const TileF y = fn(a, b);
      for (int l = 0; l < TileF::size; ++l) {
        const float alone = fn(TileF(a[l]), TileF(b[l]))[0], among = y[l];
        if (std::bit_cast<std::uint32_t>(alone) != std::bit_cast<std::uint32_t>(among))
          FAIL_CHECK(name << "(" << a[l] << ", " << b[l] << "): " << alone << ", " << among);
      }
    }
  };
#define FIRN_CHECK_LANES_1(name) check_lanes(#name, [](TileF a, TileF) { return name(a); })
#define FIRN_CHECK_LANES_2(name) check_lanes(#name, [](TileF a, TileF b) { return name(a, b); })
  FIRN_CHECK_LANES_1(exp);
  FIRN_CHECK_LANES_1(exp2);
  FIRN_CHECK_LANES_1(expm1);
  FIRN_CHECK_LANES_1(log);
  FIRN_CHECK_LANES_1(log2);
  FIRN_CHECK_LANES_1(log1p);
  FIRN_CHECK_LANES_1(tanh);
  FIRN_CHECK_LANES_1(erf);
  FIRN_CHECK_LANES_1(erfc);
  FIRN_CHECK_LANES_1(sin);
  FIRN_CHECK_LANES_1(cos);
  FIRN_CHECK_LANES_1(tan);
  FIRN_CHECK_LANES_1(asin);
  FIRN_CHECK_LANES_1(acos);
  FIRN_CHECK_LANES_1(atan);
  FIRN_CHECK_LANES_1(sinh);
  FIRN_CHECK_LANES_1(cosh);
  FIRN_CHECK_LANES_1(asinh);
  FIRN_CHECK_LANES_1(acosh);
  FIRN_CHECK_LANES_1(atanh);
  FIRN_CHECK_LANES_1(log10);
  FIRN_CHECK_LANES_2(pow);
  FIRN_CHECK_LANES_2(fmod);
  FIRN_CHECK_LANES_2(atan2);
  FIRN_CHECK_LANES_2(hypot);
#undef FIRN_CHECK_LANES_1
#undef FIRN_CHECK_LANES_2
}
