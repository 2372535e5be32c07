// Row operations against plain double arithmetic: every tail length, extreme values, sinks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/rows.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> softmax_of(const std::vector<double>& x, std::size_t n, bool log) {
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r + n <= x.size() && n > 0; r += n) {
    const double max = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(r),
                                         x.begin() + static_cast<std::ptrdiff_t>(r + n));
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += std::exp(x[r + j] - max);
    for (std::size_t j = 0; j < n; ++j) {
      const double l = x[r + j] - max - std::log(sum);
      y[r + j] = log ? l : std::exp(l);
    }
  }
  return y;
}

TEST_CASE("softmax and log_softmax of rows of every length around the vector width") {
  for (const DType t : {f32, f64}) {
    for (std::int64_t n = 1; n <= 140; n += n < 70 ? 1 : 7) {
      Rng rng(static_cast<std::uint64_t>(n));
      const auto values = rounded(rng.uniforms(3 * n, -20, 20), t);
      const Tensor x = make(values, {3, n}, t);
      const double u = epsilon_of(t);
      const std::string name = std::string(to_string(t)) + " n " + std::to_string(n);
      expect_close("softmax " + name, values_of(softmax(x)),
                   softmax_of(values, static_cast<std::size_t>(n), false), 40 * u);
      expect_close("log_softmax " + name, values_of(log_softmax(x)),
                   softmax_of(values, static_cast<std::size_t>(n), true), 80 * u);
    }
  }
}

TEST_CASE("softmax of extreme rows") {
  const Tensor big = make({1e4, 1e4, -1e4, 3e38, -3e38, 0}, {2, 3}, f32);
  expect_same("big", values_of(softmax(big)), {0.5, 0.5, 0, 1, 0, 0});
  const Tensor masked = make({-kInf, 0, -kInf, 0}, {4}, f32);
  expect_same("masked", values_of(softmax(masked)), {0, 0.5, 0, 0.5});
  CHECK(values_of(log_softmax(masked))[0] == -kInf);
  for (const auto& row : {std::vector<double>{-kInf, -kInf}, {1, std::nan("")}, {kInf, 0}})
    for (double v : values_of(softmax(make(row, {2}, f32)))) {
      // One infinity takes all in the limit, but inf - inf is NaN: as the definition computes.
      if (row[0] != kInf) CHECK(std::isnan(v));
    }
  const Tensor half = make({65504, 0, -65504, 65504}, {4}, f16);
  expect_same("half", values_of(softmax(half)), {0.5, 0, 0, 0.5});
}

TEST_CASE("softmax along an inner axis and of a transposed tensor") {
  Rng rng(1);
  const auto values = rng.uniforms(24, -2, 2);
  const Tensor x = make(values, {2, 3, 4});
  const Tensor y = softmax(x, 1);
  CHECK(y.shape() == Shape{2, 3, 4});
  for (double s : values_of(sum(y, {1}))) CHECK(s == Approx(1).epsilon(1e-14));
  expect_close("axis 1", values_of(transpose(y, 1, 2)), values_of(softmax(transpose(x, 1, 2))), 0);
}

TEST_CASE("rows of an empty tensor, and rows without elements") {
  CHECK(softmax(empty({0, 5})).shape() == Shape{0, 5});
  CHECK(softmax(empty({5, 0})).shape() == Shape{5, 0});
  CHECK(layer_norm(empty({0, 5})).shape() == Shape{0, 5});
}

TEST_CASE("softmax_backward adds to its sink, also an f32 sink of an f16 input") {
  const Tensor y = make({0.25, 0.75, 0.5, 0.5}, {2, 2}, f16);
  const Tensor dy = make({1, 2, 3, 1}, {2, 2}, f16);
  const std::vector<double> want = {0.25 * (1 - 1.75), 0.75 * (2 - 1.75), 0.5, -0.5};
  for (const DType t : {f16, f32}) {
    const Tensor dx = make({10, 20, 30, 40}, {2, 2}, t);
    kernels::softmax_backward(dy.view(), y.view(), dx.mutable_view(), false, 1,
                              current_stream(default_device()));
    expect_close("beta 1", values_of(dx), {10 + want[0], 20 + want[1], 30 + want[2], 40 + want[3]},
                 t == f16 ? 0.01 : 1e-6);
    kernels::softmax_backward(dy.view(), y.view(), dx.mutable_view(), false, 0,
                              current_stream(default_device()));
    expect_close("beta 0", values_of(dx), want, 1e-3);
  }
}

TEST_CASE("layer_norm keeps its digits beside a large mean") {
  // Values 4096 +- 1: E[x^2] - E[x]^2 would lose the variance in f32.
  std::vector<double> values(257);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 4096 + (i % 2 == 0 ? 1 : -1);
  const auto y = values_of(layer_norm(make(values, {1, 257}, f32), {}, {}, 0));
  for (std::size_t i = 0; i < y.size(); ++i)
    CHECK(y[i] == Approx(i % 2 == 0 ? 1 : -1).epsilon(0.01));
}

TEST_CASE("layer_norm and rms_norm of hand-computed rows") {
  const Tensor x = make({1, 2, 3, 4, 2, 2, 2, 2}, {2, 4}, f64);
  const Tensor w = make({1, 2, 1, 1}, {4}), b = make({0, 0, 10, 0}, {4});
  const double s = 1 / std::sqrt(1.25 + 1e-5);
  expect_close("layer_norm", values_of(layer_norm(x, w, b)),
               {-1.5 * s, -0.5 * 2 * s, 0.5 * s + 10, 1.5 * s, 0, 0, 10, 0}, 1e-14);
  const double r = 1 / std::sqrt(7.5 + 1e-6), q = 1 / std::sqrt(4 + 1e-6);
  expect_close("rms_norm", values_of(rms_norm(x, w)),
               {r, 4 * r, 3 * r, 4 * r, 2 * q, 4 * q, 2 * q, 2 * q}, 1e-14);
}

TEST_CASE("norm accepts f32 parameters for f16 rows and gives them f32 gradients") {
  const Tensor x = make({1, 2, 3, 6}, {2, 2}, f16);
  Tensor w = make({1.5, 2}, {2}, f32), b = make({0.25, 0}, {2}, f32);
  w.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = layer_norm(x, w, b, 0);
  CHECK(y.dtype() == f16);
  expect_close("y", values_of(y), {-1.25, 2, -1.25, 2}, 1e-3);
  backward(y, {.initial_gradient = make({1, 1, 2, 5}, {2, 2}, f16)});
  CHECK(w.grad().dtype() == f32);
  expect_close("dweight", values_of(w.grad()), {-3, 6}, 1e-5);
  expect_close("dbias", values_of(b.grad()), {3, 6}, 1e-6);
}

TEST_CASE("norm_backward over no rows stores zero parameter gradients, or keeps what was there") {
  const Tensor none = empty({0, 3}), rstd = empty({0});
  const Tensor dw = make({7, 7, 7}, {3}, f32), db = make({7, 7, 7}, {3}, f32);
  kernels::NormGrads grads;
  grads.dweight = dw.mutable_view();
  grads.dbias = db.mutable_view();
  grads.dbias_beta = 1;
  kernels::norm_backward(none.view(), none.view(), ConstView{}, rstd.view(), rstd.view(), true,
                         grads, current_stream(default_device()));
  expect_same("dweight", values_of(dw), {0, 0, 0});
  expect_same("dbias", values_of(db), {7, 7, 7});
}

TEST_CASE("one tensor may be both weight and bias: its gradient is the sum") {
  const Tensor x = make({1, 3, 2, 8}, {2, 2});
  Tensor p = make({2, 3}, {2});
  p.set_requires_grad();
  backward(layer_norm(x, p, p, 0), {.initial_gradient = ones({2, 2}, f64)});
  expect_close("shared", values_of(p.grad()), {2 - 2, 2 + 2}, 1e-12);
}

TEST_CASE("gradients of rows have the same bits for 1 and 2 threads", "[host]") {
  const auto run = [](int threads) {
    const Threads guard(threads);
    Generator g(1);
    Tensor x = randn({700, 130}, {.device = Device::cpu(), .generator = &g}),
           w = rand({130}, {.device = Device::cpu(), .generator = &g});
    Tensor b = rand({130}, {.device = Device::cpu(), .generator = &g});
    x.set_requires_grad();
    w.set_requires_grad();
    b.set_requires_grad();
    const Tensor y = softmax(layer_norm(x, w, b));
    const Tensor target = empty({700}, i64);
    for (std::int64_t i = 0; i < 700; ++i) target.data<std::int64_t>()[i] = i % 130;
    const Loss loss = cross_entropy(y, target);
    loss.sum.backward();
    std::vector<double> all = {loss.sum.item()};
    for (const Tensor& t : {x, w, b}) {
      const auto more = values_of(t.grad());
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  expect_same("1 and 2 threads", run(2), run(1));
}

TEST_CASE("row operations refuse what has no rows or other dtypes", "[host]") {
  CHECK(error_of([] { softmax(full({}, 1)); }) ==
        "[softmax] [] f32 cpu has no axis; hint: x.reshape({1})");
  CHECK(error_of([] {
          layer_norm(ones({2, 3}), ones({2}));
        }) ==
        "[layer_norm] weight [2] f32 cpu for x [2, 3] f32 cpu: expected shape [3]; hint: "
        "normalisation is "
        "over the last axis");
  CHECK(error_of([] {
          rms_norm(ones({2, 3}, f16), ones({3}, f64));
        }) ==
        "[rms_norm] weight [3] f64 cpu and x [2, 3] f16 cpu differ in dtype or device; hint: cast "
        "or move "
        "it");
  CHECK(error_of([] { softmax(ones({2}, i64)); }) ==
        "[softmax] needs a floating dtype, got [2] i64 cpu; hint: cast it: x.to(firn::f32)");
}

}  // namespace
}  // namespace firn::testing
