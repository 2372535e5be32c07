// What ops make of NaN, infinities, -0 and denormals: in, expected out.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_same;
using firn::testing::make;
using firn::testing::values_of;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

struct Unary {
  const char* name;
  Tensor (*op)(const Tensor&);
  Values want;  // for the operands below, in order
};

// The special values of one operand. The denormal is the dtype's smallest.
const Values kSpecials = {kNaN, kInf, -kInf, 0.0, -0.0};

}  // namespace

TEST_CASE("non-finite: one operand", "[ops]") {
  const Unary table[] = {
      {"neg", neg, {kNaN, -kInf, kInf, -0.0, 0.0}},
      {"abs", abs, {kNaN, kInf, kInf, 0, 0}},
      {"exp", exp, {kNaN, kInf, 0, 1, 1}},
      {"log", log, {kNaN, kInf, kNaN, -kInf, -kInf}},
      {"sqrt", sqrt, {kNaN, kInf, kNaN, 0.0, -0.0}},
      {"rsqrt", [](const Tensor& x) { return abs(rsqrt(x)); }, {kNaN, 0, kNaN, kInf, kInf}},
      {"square", square, {kNaN, kInf, kInf, 0, 0}},
      {"reciprocal", reciprocal, {kNaN, 0.0, -0.0, kInf, -kInf}},
      {"relu", [](const Tensor& x) { return relu(x) + 0; }, {kNaN, kInf, 0, 0, 0}},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x) + 0; }, {kNaN, kInf, -kInf, 0, 0}},
      {"elu", [](const Tensor& x) { return elu(x) + 0; }, {kNaN, kInf, -1, 0, 0}},
      {"sigmoid", sigmoid, {kNaN, 1, 0, 0.5, 0.5}},
      {"tanh", [](const Tensor& x) { return tanh(x) + 0; }, {kNaN, 1, -1, 0, 0}},
      {"softplus", softplus, {kNaN, kInf, 0, std::log(2.0), std::log(2.0)}},
      {"sin", [](const Tensor& x) { return sin(x) + 0; }, {kNaN, kNaN, kNaN, 0, 0}},
      {"cos", cos, {kNaN, kNaN, kNaN, 1, 1}},
      {"clamp", [](const Tensor& x) { return clamp(x, -2, 3) + 0; }, {kNaN, 3, -2, 0, 0}},
  };
  for (const auto& row : table) {
    for (DType t : {f64, f32, f16, bf16}) {
      INFO(row.name << " " << to_string(t));
      // 33 copies: through whole vectors as well as the rest of one.
      Values in, want;
      for (int i = 0; i < 33; ++i) {
        in.insert(in.end(), kSpecials.begin(), kSpecials.end());
        want.insert(want.end(), row.want.begin(), row.want.end());
      }
      const Tensor y = row.op(make(in, {static_cast<std::int64_t>(in.size())}, t));
      if (std::string(row.name) == "softplus" && t != f64) {
        firn::testing::expect_close(row.name, values_of(y), want, 3 * epsilon_of(t));
      } else {
        expect_same(row.name, values_of(y), want);
      }
    }
  }
}

TEST_CASE("non-finite: gelu and silu vanish at -infinity and keep infinity", "[ops]") {
  using Op = Tensor (*)(const Tensor&);
  for (Op op : {static_cast<Op>(gelu), static_cast<Op>(gelu_tanh), static_cast<Op>(silu)}) {
    for (DType t : {f64, f32}) {
      const Values y = values_of(op(make({kNaN, kInf, 1e4, -1e4, 0}, {5}, t)));
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == kInf);
      CHECK(y[2] == 1e4);
      CHECK(y[3] == 0);
      CHECK(y[4] == 0);
    }
  }
}

TEST_CASE("non-finite: minimum and maximum pass a NaN on from either side", "[ops]") {
  const Tensor a = make({kNaN, 1, kInf, -kInf, kNaN}, {5}), b = make({1, kNaN, 2, 2, kInf}, {5});
  expect_same("maximum", values_of(maximum(a, b)), {kNaN, kNaN, kInf, 2, kNaN});
  expect_same("minimum", values_of(minimum(a, b)), {kNaN, kNaN, 2, -kInf, kNaN});
}

TEST_CASE("non-finite: arithmetic follows IEEE 754", "[ops]") {
  const Tensor a = make({kInf, kInf, 0, 1, -1, 0}, {6}),
               b = make({kInf, -kInf, kInf, 0, 0, 0}, {6});
  expect_same("add", values_of(a + b), {kInf, kNaN, kInf, 1, -1, 0});
  expect_same("sub", values_of(a - b), {kNaN, kInf, -kInf, 1, -1, 0});
  expect_same("mul", values_of(a * b), {kInf, -kInf, kNaN, 0.0, -0.0, 0});
  expect_same("div", values_of(a / b), {kNaN, kNaN, 0, kInf, -kInf, kNaN});
  expect_same("pow",
              values_of(pow(make({0, 0, 2, -8, kInf}, {5}), make({0, 2, -kInf, 2, -1}, {5}))),
              {1, 0, 0, 64, 0});
}

TEST_CASE("non-finite: a comparison with NaN is false, but ne is true", "[ops]") {
  const Tensor a = make({kNaN, kNaN, 1, 0.0, 2}, {5}), b = make({kNaN, 1, kNaN, -0.0, 3}, {5});
  CHECK(values_of(eq(a, b)) == Values{0, 0, 0, 1, 0});
  CHECK(values_of(ne(a, b)) == Values{1, 1, 1, 0, 1});
  CHECK(values_of(lt(a, b)) == Values{0, 0, 0, 0, 1});
  CHECK(values_of(le(a, b)) == Values{0, 0, 0, 1, 1});
  CHECK(values_of(gt(a, b)) == Values{0, 0, 0, 0, 0});
  CHECK(values_of(ge(a, b)) == Values{0, 0, 0, 1, 0});
}

TEST_CASE("non-finite: where takes one side only", "[ops]") {
  Tensor x = make({1, 0}, {2});
  x.set_requires_grad();
  const Tensor y = where(gt(x, make({0.5}, {1})), x, make({kNaN, 7}, {2}));
  CHECK(values_of(y) == Values{1, 7});
  sum(y).backward();
  CHECK(values_of(x.grad()) == Values{1, 0});
}

TEST_CASE("non-finite: reductions", "[ops]") {
  for (DType t : {f64, f32, f16}) {
    INFO(to_string(t));
    Values in(100, 1.0);
    in[70] = kNaN;
    const Tensor x = make(in, {100}, t);
    for (const Tensor& y : {max(x), min(x), sum(x), mean(x), var(x), norm(x)})
      CHECK(std::isnan(y.item()));
    CHECK(argmax(x).item() == 70);
    in[70] = kInf;
    CHECK(max(make(in, {100}, t)).item() == kInf);
    CHECK(sum(make(in, {100}, t)).item() == kInf);
    CHECK(norm(make(in, {100}, t)).item() == kInf);
    in[70] = -kInf;
    CHECK(max(make(in, {100}, t)).item() == 1);
    CHECK(min(make(in, {100}, t)).item() == -kInf);
  }
}

TEST_CASE("non-finite: empty reductions", "[ops]") {
  const Tensor none = empty({0, 3});
  CHECK(values_of(sum(none, {0})) == Values{0, 0, 0});
  CHECK(std::isnan(mean(none).item()));
  CHECK_THROWS_AS(max(none), Error);
  CHECK_THROWS_AS(min(none, {0}), Error);
  CHECK_THROWS_AS(argmax(none, 0), Error);
  CHECK(max(none, {1}).shape() == Shape{0});
}

TEST_CASE("non-finite: softmax", "[ops]") {
  const Tensor x = make({1000, 1000, -kInf, 0, -kInf, kInf, 1, kNaN, -kInf, -kInf}, {5, 2}, f32);
  const Values y = values_of(softmax(x));
  CHECK(y[0] == 0.5);  // the row's maximum comes off first: no overflow
  CHECK(y[2] == 0);
  CHECK(y[3] == 1);
  CHECK(std::isnan(y[5]));  // inf - inf
  CHECK(std::isnan(y[6]));
  CHECK(std::isnan(y[7]));
  CHECK(std::isnan(y[8]));  // a row of -inf
  const Values z = values_of(log_softmax(x));
  CHECK(z[0] == static_cast<float>(-std::log(2.0)));
  CHECK(z[2] == -kInf);
  CHECK(z[3] == 0);
}

TEST_CASE("non-finite: 16-bit results overflow to infinity, not to garbage", "[ops]") {
  const Tensor x = make({60000, -60000}, {2}, f16);
  expect_same("add", values_of(x + x), {kInf, -kInf});
  expect_same("mul", values_of(x * 2), {kInf, -kInf});
  CHECK(sum(make(Values(100, 60000), {100}, f16)).item() == kInf);
  CHECK(mean(make(Values(64, 60000), {64}, f16)).item() == 60000);  // summed in f32
}

TEST_CASE("non-finite: f16 subnormals are numbers", "[ops]") {
  const Tensor x = make({0x1p-24, 0x1p-15, 0x3p-24}, {3}, f16);
  CHECK(values_of(x * 2) == Values{0x1p-23, 0x1p-14, 0x6p-24});
  CHECK(values_of(x + x) == Values{0x1p-23, 0x1p-14, 0x6p-24});
  CHECK(values_of(neg(x)) == Values{-0x1p-24, -0x1p-15, -0x3p-24});
}

TEST_CASE("non-finite: copies keep every bit pattern of 16-bit values", "[ops]") {
  std::vector<half> all(65536);
  for (int i = 0; i < 65536; ++i)
    all[static_cast<std::size_t>(i)] = half::from_bits(static_cast<std::uint16_t>(i));
  const Tensor x = tensor(all, {256, 256});
  const auto same_bits = [](const Tensor& a, const Tensor& b) {
    const auto p = a.to_vector<half>(), q = b.to_vector<half>();
    return std::equal(p.begin(), p.end(), q.begin(), q.end(),
                      [](half u, half v) { return u.bits == v.bits; });
  };
  CHECK(same_bits(x, x.clone()));
  CHECK(same_bits(x, contiguous(transpose(contiguous(transpose(x, 0, 1)), 0, 1))));
  CHECK(same_bits(x, cat({slice(x, 0, 0, 100), slice(x, 0, 100, 256)}, 0)));
}

TEST_CASE("non-finite: a NaN in the gradient reaches the leaf", "[ops]") {
  for (const double bad : {kNaN, kInf}) {
    Tensor x = make({1, 2}, {2});
    x.set_requires_grad();
    backward(exp(x) * 1.0, {.initial_gradient = make({bad, 1}, {2})});
    CHECK_FALSE(std::isfinite(values_of(x.grad())[0]));
    CHECK(std::isfinite(values_of(x.grad())[1]));
  }
}

TEST_CASE("non-finite: a NaN in a convolution reaches what its windows see, and no neighbour",
          "[ops]") {
  struct Case {
    std::int64_t channels, kernels, taps, stride, groups;
  };
  std::vector<Case> cases;
  for (const std::int64_t channels : {1, 2, 3, 5, 8, 17, 33})
    for (const std::int64_t kernels : {2, 9})
      for (const std::int64_t taps : {1, 3})
        for (const std::int64_t groups : {1, 2})
          cases.push_back({channels, kernels, taps, 1 + channels % 2, groups});
  // Where the numbers are not finite: in the output, and in both gradients.
  const auto holes = [](const Case& c, DType dtype) {
    const Shape of_x{2, c.channels * c.groups, 5, 5};
    Values x(static_cast<std::size_t>(of_x.product()), 1.0);
    x[12] = kNaN;  // the middle of the first channel
    const Tensor in = make(x, of_x, dtype).set_requires_grad();
    const Tensor w = make({1.0}, {1}, dtype)
                         .expand({c.kernels * c.groups, c.channels, c.taps, c.taps})
                         .clone()
                         .set_requires_grad();
    const Conv2dOptions options{.stride = c.stride, .groups = c.groups};
    const Tensor y = conv2d(in, w, {}, options);
    Values seed(static_cast<std::size_t>(y.numel()), 1.0);
    seed[0] = kInf;
    const Tensor clean = make(Values(x.size(), 1.0), of_x, dtype).set_requires_grad();
    backward(conv2d(clean, w, {}, options), {.initial_gradient = make(seed, y.shape(), dtype)});
    std::vector<bool> out;
    for (const Tensor& t : {y, clean.grad(), w.grad()})
      for (const double v : values_of(t)) out.push_back(std::isfinite(v));
    return out;
  };
  for (std::size_t i = 0; i < cases.size(); i += static_cast<std::size_t>(firn::testing::fewer(9)))
    for (const DType dtype : {f32, bf16, f16}) {
      const Case& c = cases[i];
      CAPTURE(c.channels, c.kernels, c.taps, c.stride, c.groups, dtype);
      CHECK(holes(c, dtype) == holes(c, f64));
    }
}
