// Pairs that are not seen: nothing of them reaches a sum, in either pass.
#include <cmath>
#include <limits>

#include "reference.h"
#include "support/catch.h"
#include "support/device/slow_device.h"

namespace firn::testing {
namespace {

const double kNan = std::nan(""), kInf = std::numeric_limits<double>::infinity();

bool none_finite_or_all_equal(const std::vector<double>& got, const std::vector<double>& want) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isfinite(want[i]) != std::isfinite(got[i])) return false;
  return true;
}

/// The same elements are finite as in plain loops, and those agree.
void check_hostile(const AttentionCase& c, const AttentionValues& x, DType dtype) {
  INFO(c.name() << " " << to_string(dtype));
  const AttentionResults want = reference(c, x), got = run_attention(c, x, dtype);
  const auto compare = [&](const char* what, std::vector<double> a, std::vector<double> b) {
    INFO(what);
    CHECK(none_finite_or_all_equal(a, b));
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!std::isfinite(b[i])) a[i] = b[i] = 0;
    CHECK(relative_error(a, b) <= (dtype == f32 ? 3e-6 : 0.03));
  };
  compare("o", got.o, want.o);
  compare("dq", got.dq, want.dq);
  compare("dk", got.dk, want.dk);
  compare("dv", got.dv, want.dv);
}

}  // namespace

TEST_CASE("attention: a NaN or an infinity reaches only the pairs that see it") {
  for (const DType dtype : {f32, bf16, f16}) {
    for (int set = 1; set < 16; set += fewer(8)) {
      AttentionCase c{.b = 2, .hq = 2, .hk = 1, .n = 35, .m = 40, .d = 8, .dv = 6};
      Rng rng(seed_of("hostile" + std::to_string(set)));
      c.take_options(set, rng);
      const AttentionValues clean = random_values(c, rng, dtype);
      for (const double bad : {kNan, kInf}) {
        const auto spoil = [&](std::vector<double>& values, std::int64_t width) {
          const std::int64_t rows = static_cast<std::int64_t>(values.size()) / width;
          for (int i = 0; i < 3; ++i)
            values[static_cast<std::size_t>(rng.below(rows) * width + rng.below(width))] = bad;
        };
        for (int which = 0; which < 4; ++which) {
          if (on_slow_device() && (which % 2 == 0) != (bad == kInf)) continue;
          AttentionValues x = clean;
          if (which == 0) spoil(x.q, c.d);
          if (which == 1) spoil(x.k, c.d);
          if (which == 2) spoil(x.v, c.dv);
          if (which == 3) spoil(x.dout, c.dv);
          check_hostile(c, x, dtype);
        }
      }
    }
  }
}

TEST_CASE("attention: padding beyond the lengths may hold anything, to the bit") {
  for (const DType dtype : {f32, f16}) {
    AttentionCase c{.b = 3, .hq = 2, .hk = 2, .n = 6, .m = 150, .d = 8, .dv = 8};
    c.lengths = {150, 0, 131};
    Rng rng(5);
    const AttentionValues clean = random_values(c, rng, dtype);
    AttentionValues x = clean;
    for (std::int64_t row = 0; row < c.b * c.hk * c.m; ++row) {
      const std::int64_t length = c.lengths[static_cast<std::size_t>(row / (c.hk * c.m))];
      for (std::int64_t e = 0; e < 8 && row % c.m >= length; ++e) {
        x.k[static_cast<std::size_t>(row * 8 + e)] = e % 2 ? kNan : kInf;
        x.v[static_cast<std::size_t>(row * 8 + e)] = e % 2 ? -kInf : kNan;
      }
    }
    const AttentionResults want = run_attention(c, clean, dtype), got = run_attention(c, x, dtype);
    expect_same("o", got.o, want.o);
    expect_same("dq", got.dq, want.dq);
    expect_same("dk", got.dk, want.dk);
    expect_same("dv", got.dv, want.dv);
  }
}

TEST_CASE("attention: a query that sees no key gives 0 and gets the gradient 0") {
  for (const DType dtype : {f16, f32, f64}) {
    // Queries 0 to 3 stand before the first key; query 5 is masked; the others see all keys.
    AttentionCase c{.b = 1, .hq = 1, .hk = 1, .n = 10, .m = 6, .d = 4, .dv = 3, .causal = true};
    c.mask_shape = {10, 1};
    c.mask = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1};
    Rng rng(3);
    AttentionValues x = random_values(c, rng, dtype);
    for (std::size_t e = 0; e < 4; ++e) x.q[5 * 4 + e] = kNan;  // even so
    for (std::size_t e = 0; e < 3; ++e) x.dout[2 * 3 + e] = kInf;
    const AttentionResults r = run_attention(c, x, dtype);
    for (const std::size_t i : {0, 1, 2, 3, 5}) {
      for (std::size_t e = 0; e < 3; ++e) CHECK(r.o[i * 3 + e] == 0);
      for (std::size_t e = 0; e < 4; ++e) CHECK(r.dq[i * 4 + e] == 0);
    }
    check_hostile(c, x, dtype == f64 ? f32 : dtype);
  }
}

TEST_CASE("attention: scores of -inf alone count as no key") {
  const Tensor q = full({1, 1, 2, 1}, kInf).set_requires_grad();
  const Tensor k = full({1, 1, 3, 1}, -1.0).set_requires_grad();
  const Tensor v = ones({1, 1, 3, 2}).set_requires_grad();
  const Tensor o = attention(q, k, v, {.scale = 1.0});
  CHECK(values_of(o) == std::vector<double>(4, 0.0));
  backward(o.sum());
  CHECK(values_of(v.grad()) == std::vector<double>(6, 0.0));
}

}  // namespace firn::testing
