// Accuracy of the elementary functions of tiles, in units in the last place of f32, against the C
// library in long double.
#include "kernels/cpu/device/tile.h"

#include <cmath>
#include <limits>
#include <numbers>

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
