// One bound, whole powers, and tensors made like another: values, dtypes, and what is refused.
#include <cmath>
#include <limits>

#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

Tensor column(const Values& v, DType t = f64) {
  return make(v, {static_cast<std::int64_t>(v.size())}, t);
}

const std::vector<std::vector<Shape>> kShapes = {{{}}, {{0}}, {{3, 5}}, {{65}}, {{1025}}};

FIRN_OP_ROWS(bounds) {
  Row("clamp_min", [](const Args& x) { return clamp_min(x[0], -0.5); })
      .args({real(-2, 2, {-0.5})})
      .shapes(kShapes)
      .accuracy(Accuracy::exact)
      .in_place([](Tensor& x, const Args&) { clamp_min_(x, -0.5); });
  Row("clamp_max", [](const Args& x) { return clamp_max(x[0], 0.5); })
      .args({real(-2, 2, {0.5})})
      .shapes(kShapes)
      .accuracy(Accuracy::exact)
      .in_place([](Tensor& x, const Args&) { clamp_max_(x, 0.5); });
}

TEST_CASE("pow of integers is exact and wraps around, as PyTorch's", "[ops]") {
  const auto whole = [](std::vector<std::int64_t> v) { return tensor(v).to(default_device()); };
  const auto list = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  using Whole = std::vector<std::int64_t>;
  CHECK(list(pow(whole({3, -2, 0, 7, 3}), whole({4, 5, 0, 0, 39}))) ==
        Whole{81, -32, 1, 1, 4052555153018976267});
  CHECK(list(pow(whole({3, -3}), 40)) == Whole{-6289078614652622815, -6289078614652622815});
  CHECK(list(pow(whole({1, -1, -1, 5, 0}), whole({-3, -3, -2, -1, -1}))) == Whole{1, -1, 1, 0, 0});
  CHECK(list(pow(2, whole({0, 10, 62, 63, 64}))) ==
        Whole{1, 1024, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::min(), 0});
  CHECK(values_of(pow(column({2, 3, 16}, u8), 2)) == Values{4, 9, 0});
  CHECK(values_of(pow(column({2, 3, 46341}, i32), 2)) == Values{4, 9, -2147479015});
  CHECK(pow(column({2}, u8), column({3}, u8)).dtype() == u8);
  CHECK(values_of(pow(column({2, -3}, i32), 0)) == Values{1, 1});
}

TEST_CASE("pow of a number to a tensor keeps the number's digits in 16 bits", "[ops]") {
  const Tensor x = column({10, 1}, f16);
  CHECK(pow(1.0005, x).dtype() == f16);
  CHECK(values_of(pow(1.0005, x)) == values_of(column({std::pow(1.0005f, 10.0f), 1.0005}, f16)));
  refused("pow", {"2.5", "i64"}, [] { pow(2.5, zeros({2}, i64)); });
}

TEST_CASE("a bound that is NaN gives NaN, by numbers as by tensors", "[ops]") {
  const Values none = {kNaN, kNaN, kNaN};
  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor x = column({-2, 0.5, 3}, t), nan = full({}, kNaN, t), one = ones({}, t);
    const auto same = [&](const char* what, const Tensor& y) {
      expect_same(what, values_of(y), none);
      CHECK(y.dtype() == t);
    };
    same("low", clamp(x, kNaN, 1));
    same("high", clamp(x, 1, kNaN));
    same("low, a tensor", clamp(x, nan, one));
    same("high, a tensor", clamp(x, one, nan));
    same("clamp_min", clamp_min(x, kNaN));
    same("clamp_max", clamp_max(x, kNaN));
    same("the only bound, a tensor", clamp(x, Tensor(), nan));
    same("hardtanh", hardtanh(x, kNaN, 1));
    Tensor y = x.clone(), z = x.clone();
    same("clamp_", clamp_(y, -1, kNaN));
    same("clamp_min_", clamp_min_(z, kNaN));
  }
  Tensor x = column({-2, 0.5}).set_requires_grad();
  clamp(x, kNaN, 1).sum().backward();
  CHECK(values_of(x.grad()) == Values{1, 1});
}

TEST_CASE("clamp_min and clamp_max have one bound, for integers too", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor x = column({kNaN, -kInf, -3, 0, 2, kInf}, t);
    expect_same("clamp_min", values_of(clamp_min(x, -1)), {kNaN, -1, -1, 0, 2, kInf});
    expect_same("clamp_max", values_of(clamp_max(x, 1)), {kNaN, -kInf, -3, 0, 1, 1});
    Tensor y = x.clone(), z = x.clone();
    clamp_min_(y, -1);
    clamp_max_(z, 1);
    expect_same("clamp_min_", values_of(y), values_of(clamp_min(x, -1)));
    expect_same("clamp_max_", values_of(z), values_of(clamp_max(x, 1)));
  }
  for (const DType t : {i32, i64}) {
    CHECK(values_of(clamp_min(column({-3, 0, 5}, t), 1)) == Values{1, 1, 5});
    CHECK(values_of(clamp_max(column({-3, 0, 5}, t), 1)) == Values{-3, 0, 1});
  }
  CHECK(clamp_min(column({3, 0}, u8), 1).dtype() == u8);
  Tensor x = column({-2, 0.5, 3}).set_requires_grad();
  (clamp_min(x, -1).sum() + 10 * clamp_max(x, 1).sum()).backward();
  CHECK(values_of(x.grad()) == Values{10, 11, 1});
  refused("clamp_min", {"u8", "-1"}, [] { (void)clamp_min(zeros({2}, u8), -1); });
}

TEST_CASE("full_like, rand_like and randn_like take shape, dtype, format and device", "[ops]") {
  const Tensor x = zeros({2, 3, 4, 5}, f16).channels_last();
  const Tensor sevens = full_like(x, 7);
  CHECK(sevens.is_channels_last());
  CHECK(sevens.dtype() == f16);
  CHECK(sevens.shape() == x.shape());
  CHECK(values_of(sevens) == Values(120, 7));
  refused("full_like", {"70000", "f16"}, [&] { full_like(x, 70000); });

  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor like = zeros({40, 3, 2, 2}, t);
    Generator a(5), b(5), c(5), d(5);
    CHECK(values_of(rand_like(like, a)) ==
          values_of(rand({40, 3, 2, 2}, {.dtype = t, .generator = &b})));
    CHECK(values_of(randn_like(like, a)) ==
          values_of(randn({40, 3, 2, 2}, {.dtype = t, .generator = &b})));
    CHECK(values_of(randn_like(like.channels_last(), c)) ==
          values_of(randn({40, 3, 2, 2}, {.dtype = t, .generator = &d})));
    CHECK(randn_like(like.channels_last()).is_channels_last());
  }
  CHECK_FALSE(rand_like(ones({2}).set_requires_grad()).requires_grad());
  refused("rand_like", {"i64"}, [] { rand_like(zeros({2}, i64)); });
  refused("randn_like", {"bool"}, [] { randn_like(zeros({2}, boolean)); });
}

}  // namespace
}  // namespace firn::testing
