// Numbers at the edges: empty inner axes, divisors that are not positive, NaN, the sign of zero,
// tails, and numbers that a dtype cannot hold.
#include <algorithm>
#include <cmath>
#include <limits>

#include "firn/nn/init.h"
#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

TEST_CASE("linear and mlp with an empty inner axis give the bias", "[ops]") {
  for (const DType t : {f32, f64, f16}) {
    Tensor x = ones({2, 3, 0}, t).set_requires_grad(), w = ones({5, 0}, t).set_requires_grad();
    Tensor b = make({1, 2, 3, 4, 5}, {5}, t).set_requires_grad();
    const Tensor y = linear(x, w, b);
    CHECK(y.shape() == Shape{2, 3, 5});
    for (std::int64_t i = 0; i < 6; ++i) CHECK(values_of(y.reshape({6, 5})[i]) == values_of(b));
    y.sum().backward();
    CHECK(values_of(b.grad()) == Values(5, 6.0));
    CHECK(w.grad().shape() == Shape{5, 0});
    CHECK(x.grad().shape() == Shape{2, 3, 0});
  }
  const Tensor b = make({-1, 2}, {2}, f32);
  const Tensor y = mlp(ones({2, 3, 0}), {ones({2, 0}), ones({1, 2})}, {b, zeros(1)});
  CHECK(y.shape() == Shape{2, 3, 1});
  CHECK(values_of(y) == Values(6, 2.0));  // relu(-1) + relu(2)
}

TEST_CASE("var: value and gradient if the correction leaves no degrees of freedom", "[ops]") {
  const auto gradient = [](const Values& x, const Shape& shape, const Axes& axes, int correction) {
    const Tensor t = make(x, shape).set_requires_grad();
    var(t, axes, correction).sum().backward();
    return values_of(t.grad());
  };
  // Over all axes: inf, and NaN at the mean, whatever the correction.
  for (const int correction : {3, 5}) {
    CHECK(var(make({1, 2, 6}, {3}), {}, correction).item() == kInf);
    expect_same("all axes", gradient({1, 3, 5}, {3}, {}, correction), {kInf, kNaN, kInf});
  }
  CHECK(std::isnan(var(make({7}, {1})).item()));
  expect_same("one element", gradient({7}, {1}, {}, 1), {kNaN});
  // Over a list of axes: 2 (x - mean) / (count - correction).
  expect_same("0 degrees", gradient({1, 3, 5, 2, 3, 4}, {2, 3}, 1, 3),
              {-kInf, kNaN, kInf, -kInf, kNaN, kInf});
  CHECK(gradient({1, 3, 5, 2, 3, 4}, {2, 3}, 1, 5) == Values{2, 0, -2, 1, 0, -1});
  CHECK(gradient({1, 3, 5}, {3}, {}, 2) == Values{-4, 0, 4});
}

TEST_CASE("maximum and minimum: beside a NaN both operands take the gradient", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16}) {
    for (const auto op : {static_cast<Tensor (*)(const Tensor&, const Tensor&)>(maximum),
                          static_cast<Tensor (*)(const Tensor&, const Tensor&)>(minimum)}) {
      // 40 elements: through whole vectors as well as the rest of one.
      Values left, right, want;
      for (int i = 0; i < 8; ++i) {
        left.insert(left.end(), {kNaN, 1, kNaN, 2, 3});
        right.insert(right.end(), {1, kNaN, kNaN, 2, 3});
        want.insert(want.end(), {1, 1, 1, 0.5, 0.5});
      }
      Tensor a = make(left, {40}, t).set_requires_grad();
      Tensor b = make(right, {40}, t).set_requires_grad();
      sum(op(a, b)).backward();
      expect_same("a", values_of(a.grad()), want);
      expect_same("b", values_of(b.grad()), want);
    }
  }
  Tensor x = make({-1, kNaN, 2, 0}, {4}).set_requires_grad();
  const Tensor y = maximum(x, 0.0);
  expect_same("maximum(x, 0)", values_of(y), {0, kNaN, 2, 0});
  sum(y).backward();
  expect_same("and its gradient", values_of(x.grad()), {0, 1, 1, 0.5});
}

TEST_CASE("odd functions keep the sign of zero", "[ops]") {
  using Fn = Tensor (*)(const Tensor&);
  const auto plain_elu = [](const Tensor& x) { return elu(x); };
  for (const DType t : {f64, f32, f16, bf16}) {
    for (const Fn fn : {Fn(tanh), Fn(+plain_elu), Fn(sin), Fn(gelu), Fn(silu), Fn(neg)}) {
      Values x;
      for (int i = 0; i < 33; ++i) x.push_back(i % 2 == 0 ? 0.0 : -0.0);
      const Values y = values_of(fn(make(x, {33}, t)));
      for (int i = 0; i < 33; ++i) {
        const auto at = static_cast<std::size_t>(i);
        REQUIRE(y[at] == 0);
        REQUIRE(std::signbit(y[at]) == (std::signbit(x[at]) != (fn == Fn(neg))));
      }
    }
  }
}

TEST_CASE("gelu in f64 has its digits in the left tail too", "[ops]") {
  Values x;
  // Below -36.6 the corrections underflow.
  for (int i = 0; i <= 3600; ++i) x.push_back(-36.5 + 0.01 * i);
  const auto n = static_cast<std::int64_t>(x.size());
  Tensor t = make(x, {n}).set_requires_grad();
  const Tensor y = gelu(t);
  y.sum().backward();
  const Values value = values_of(y), slope = values_of(t.grad());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double a = x[i];
    const long double cdf = 0.5L * erfcl(-a / sqrtl(2.0L));
    const long double density = expl(-a * a / 2) / sqrtl(2 * acosl(-1.0L));
    INFO("x = " << x[i]);
    REQUIRE(std::abs(static_cast<double>(value[i] / (a * cdf)) - 1) < 3e-15);
    if (x[i] < -2)
      REQUIRE(std::abs(static_cast<double>(slope[i] / (cdf + a * density)) - 1) < 4e-15);
  }
  const Values far = values_of(gelu(make({-kInf, -1e300, -41, 41, 1e300, kInf}, {6})));
  CHECK(std::isnan(far[0]));
  expect_same("far out", {far.begin() + 1, far.end()}, {-0.0, -0.0, 41, 1e300, kInf});
}

TEST_CASE("a number that the dtype cannot hold is refused", "[ops]") {
  refused("full", {"0.5", "i64"}, [] { full({3}, 0.5, i64); });
  refused("full", {"300", "u8"}, [] { full({3}, 300, u8); });
  refused("full", {"-1", "u8"}, [] { full({3}, -1, {.dtype = u8}); });
  refused("full", {"3000000000", "i32"}, [] { full({3}, 3e9, i32); });
  refused("full", {"nan", "i64"}, [] { full({3}, kNaN, i64); });
  refused("full", {"inf", "i32"}, [] { full({3}, kInf, i32); });
  refused("full", {"2", "bool"}, [] { full({3}, 2, boolean); });
  refused("full", {"100000", "infinite", "f16"}, [] { full({3}, 1e5, f16); });
  refused("full", {"i64", "2^53"}, [] { full({3}, 1e17, i64); });
  refused("ones", {"[1099511627776, 1099511627776]"}, [] { ones({1ll << 40, 1ll << 40}); });
  refused("fill_", {"0.5", "i64"}, [] { fill_(zeros({3}, i64), 0.5); });
  refused("arange", {"0.1", "i64", "f32"}, [] { arange(5, {.step = 0.1}); });
  refused("arange", {"0.5", "i64"}, [] { arange(1, {.start = 0.5}); });
  refused("arange", {"4 to 2", "away", "count"}, [] { arange(4, 2, 3); });
  refused("arange", {"0 to 1", "steps of 0"}, [] { arange(0, 1, 0); });
  refused("arange", {"0 to inf"}, [] { arange(0, kInf); });
  refused("arange", {"too many"}, [] { arange(0, 1e300, 1e-300, f64); });
  refused("arange", {"too many"}, [] { arange(INT64_MIN, INT64_MAX, 2); });
  refused("arange", {"18446744073709551615", "i64"}, [] { arange(0u, UINT64_MAX); });
  refused("arange", {"9007199254740992", "i32"},
          [] { arange(9007199254740993, 9007199254740994, i32); });
  refused("arange", {"1e+308", "finite"},
          [] { arange(3, {.start = 1e308, .step = 1e308, .dtype = f64}); });
  refused("arange", {"nan"}, [] { arange(3, {.step = kNaN, .dtype = f32}); });
  refused("arange", {"too many elements"}, [] { arange(INT64_MAX); });
  refused("arange", {"256", "u8"}, [] { arange(257, u8); });
  refused("eq", {"0.5", "i64"}, [] { eq(zeros({3}, i64), 0.5); });
  refused("where", {"300", "u8"}, [] { return where(ones({3}, boolean), zeros({3}, u8), 300); });
  refused("maximum", {"0.5", "i32"}, [] { maximum(zeros({3}, i32), 0.5); });

  // Arithmetic with a number has the same rule, in each form.
  const Tensor u = ones({2}, u8), n = ones({2}, i32), k = ones({2}, i64);
  refused("add", {"256 does not fit u8"}, [&] { add(u, 256.0); });
  refused("sub", {"-1 does not fit u8"}, [&] { u - -1.0; });
  refused("mul", {"300 does not fit u8"}, [&] { mul(u, 300.0); });
  refused("mul", {"0.5 does not fit i32"}, [&] { 0.5 * n; });
  refused("sub", {"300 does not fit u8"}, [&] { 300.0 - u; });
  refused("sub", {"2147483648 does not fit i32"}, [&] { n - 2147483648.0; });
  refused("add", {"does not fit i64", "2^53"}, [&] { k + 1e17; });
  refused("mul", {"nan does not fit i64"}, [&] { k* kNaN; });
  Tensor target = ones({2}, u8);
  refused("add_", {"300 does not fit u8"}, [&] { target += 300.0; });
  refused("sub_", {"-1 does not fit u8"}, [&] { target -= -1.0; });
  refused("mul_", {"0.5 does not fit u8"}, [&] { target *= 0.5; });
  CHECK(values_of(target) == Values{1, 1});
  CHECK(values_of(sub(zeros({1}, u8), 1.0)) == Values{255});  // the result wraps around
  CHECK(values_of(sub(zeros({1}, i32), -2147483648.0)) == Values{-2147483648.0});
  CHECK(values_of(u * full({2}, 255, u8) + u * 2.0) == Values{1, 1});
  CHECK(values_of(add(zeros({1}, f16), 1e6)) == Values{kInf});  // floating dtypes round as ever

  CHECK(values_of(full({2}, 255, u8)) == Values{255, 255});
  CHECK(values_of(full({1}, -2147483648.0, i32)) == Values{-2147483648.0});
  CHECK(values_of(full({1}, 9007199254740992.0, i64)) == Values{9007199254740992.0});
  CHECK(values_of(full({1}, 65504, f16)) == Values{65504});
  CHECK(values_of(full({1}, kInf, f16)) == Values{kInf});
  CHECK(std::isnan(full({1}, kNaN, f32).item()));
  CHECK(values_of(full({1}, 1, boolean)) == Values{1});
  expect_close("tenths", values_of(arange(5, {.step = 0.1, .dtype = f64})), {0, 0.1, 0.2, 0.3, 0.4},
               1e-15);
  CHECK(values_of(arange(256, u8)).back() == 255);
}

TEST_CASE("random numbers: what the dtype cannot hold is refused", "[ops]") {
  refused("rand", {"-3e+38", "3e+38", "the width is infinite as f32"},
          [] { rand({1000}, {.low = -3e38, .high = 3e38}); });
  refused("rand", {"infinite as f32"},
          [] { rand({4}, {.low = -3e38, .high = 3e38, .dtype = bf16}); });
  refused("rand", {"1.7e+308", "infinite as f64"},
          [] { rand({4}, {.low = -1.7e308, .high = 1.7e308, .dtype = f64}); });
  refused("rand", {"1000000 is infinite as f16"},
          [] { rand({4}, {.low = 0, .high = 1e6, .dtype = f16}); });
  refused("rand", {"-1e+39 is infinite as f32"}, [] { rand({4}, {.low = -1e39}); });
  refused("randn", {"stddev 20000", "infinite as f16"},
          [] { randn({4}, {.stddev = 20000, .dtype = f16}); });
  refused("randn", {"mean 1e+39", "infinite as f32"}, [] { randn({4}, {.mean = 1e39}); });
  refused("randn", {"infinite as f64"}, [] { randn({4}, {.stddev = 1e308, .dtype = f64}); });
  const Tensor x = zeros({4}, f16);
  refused("uniform_", {"1000000 is infinite as f16"}, [&] { uniform_(x, 0, 1e6); });
  refused("normal_", {"stddev 100000"}, [&] { normal_(x, 0, 1e5); });
  CHECK(values_of(x) == Values(4, 0));
  refused("init::trunc_normal_", {"infinite as f16"},
          [&] { nn::init::trunc_normal_(x, 0, 1e6, -1e7, 1e7); });
  refused("init::orthogonal_", {"1000000 is infinite as f16"}, [] {
    nn::init::orthogonal_(zeros({2, 2}, f16), 1e6);
  });
  refused("init::orthogonal_", {"gain = inf"}, [] { nn::init::orthogonal_(zeros({2, 2}), kInf); });

  // Ranges that just fit.
  const Values wide = values_of(rand({1000}, {.low = -1.7e38, .high = 1.7e38}));
  const auto [least, most] = std::minmax_element(wide.begin(), wide.end());
  CHECK((*least < -1.5e38 && *least >= -1.7e38 && *most > 1.5e38 && *most < 1.7e38));
  for (const double v : values_of(rand({1000}, {.low = -65504, .high = 65504, .dtype = f16})))
    REQUIRE(std::abs(v) <= 65504);
  for (const double v : values_of(randn({1000}, {.stddev = 9800, .dtype = f16})))
    REQUIRE(std::isfinite(v));
}

TEST_CASE("tensors of every C++ integer, of one number, and of braces with a shape", "[ops]") {
  CHECK(tensor({1LL, -2LL}).dtype() == i64);
  CHECK(tensor({1L, -2L}).dtype() == (sizeof(long) == 8 ? i64 : i32));
  CHECK(tensor({1, 2, 3}).dtype() == i32);
  CHECK(values_of(tensor({(1LL << 40) + 1})) == Values{1099511627777.0});
  CHECK(tensor(std::vector<long long>{5, 6}, {2}).to_vector<long long>() ==
        std::vector<long long>{5, 6});
  const Tensor one = tensor(3.f);
  CHECK(one.shape() == Shape{});
  CHECK(one.dtype() == f32);
  CHECK(one.item() == 3);
  CHECK(tensor(2.5).dtype() == f64);
  CHECK(tensor(7).dtype() == i32);
  CHECK(tensor(true).dtype() == boolean);
  CHECK(tensor({1.f, 2.f, 3.f, 4.f}, {2, 2})[1][0].item() == 3);
  refused("tensor", {"3 values", "[2, 2]"}, [] { tensor({1.f, 2.f, 3.f}, {2, 2}); });
}

}  // namespace
}  // namespace firn::testing
