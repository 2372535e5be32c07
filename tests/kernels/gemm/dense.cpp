// The products of a dense layer against the general product and plain formulas: both twins on a
// CUDA device, all dtypes, strides, padding of what is saved.
#include "kernels/dense.h"
#include "kernels/settings/settings.h"

#include <cmath>
#include <limits>
#include <vector>

#include "firn/firn.h"
#include "kernels/gemm/ways.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/epilogue_bounds.h"

using namespace firn;
using firn::testing::gelu_error;
using firn::testing::gelu_slope_error;
using firn::testing::tanh_error;
using firn::testing::Twin;
using firn::testing::twins;
using Kind = kernels::Activation;
using kernels::Epilogues;

namespace {

Tensor normal(const Shape& shape, DType dtype, Generator& g) {
  return randn(shape, {.dtype = dtype, .device = Device::cpu(), .generator = &g});
}
Tensor there(const Tensor& t) { return t.to(default_device()); }
std::vector<double> values(const Tensor& t) { return t.contiguous().to_vector<double>(); }

double activation_of(Kind a, double x) {
  if (a == Kind::relu) return x > 0 ? x : 0;
  if (a == Kind::gelu_tanh)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}
double slope_of(Kind a, double x) {
  if (a == Kind::relu) return x > 0 ? 1 : 0;
  if (a == Kind::none) return 1;
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

/// a [m, k] times b [k, n], row-major, in double; `magnitude`: of the absolute values.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                            std::int64_t m, std::int64_t n, std::int64_t k,
                            bool magnitude = false) {
  std::vector<double> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t q = 0; q < k; ++q) {
        const double term =
            a[static_cast<std::size_t>(i * k + q)] * b[static_cast<std::size_t>(q * n + j)];
        c[static_cast<std::size_t>(i * n + j)] += magnitude ? std::abs(term) : term;
      }
  return c;
}
std::vector<double> flipped(const std::vector<double>& a, std::int64_t rows, std::int64_t cols) {
  std::vector<double> t(a.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      t[static_cast<std::size_t>(j * rows + i)] = a[static_cast<std::size_t>(i * cols + j)];
  return t;
}

/// `slack` counts roundings of `unit` to the size of the result and of what was summed up for it.
/// `more` is what else an element may be off by; empty: nothing.
void check_close(const std::vector<double>& got, const std::vector<double>& want,
                 const std::vector<double>& sums, double unit, double sum_unit, double slack,
                 const std::vector<double>& more = {}) {
  REQUIRE(got.size() == want.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = slack * (unit * std::abs(want[i]) + sum_unit * sums[i]) + 1e-7 * unit +
                         (more.empty() ? 0 : more[i]);
    const double error = std::abs(got[i] - want[i]);
    worst = std::max(worst, std::isfinite(got[i]) ? error / bound : 1e300);
  }
  CHECK(worst <= 1);
}

struct Size {
  std::int64_t m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},     {3, 5, 4},    {1, 9, 7},      {7, 1, 3},
                                  {17, 130, 33}, {8, 200, 30}, {260, 520, 24}, {33, 310, 40}};

}  // namespace

namespace {

void check_forward_and_data_gradient(DType dtype, Kind activation) {
  const double unit = epsilon_of(dtype), sum_unit = epsilon_of(compute_dtype(dtype));
  Generator g(3);
  for (const Size& s : kSizes) {
    for (const bool with_bias : {false, true}) {
      const Tensor x = normal({s.m, s.k}, dtype, g), w = normal({s.n, s.k}, dtype, g);
      const Tensor b = normal({s.n}, dtype, g);
      const auto xs = values(x), ws = flipped(values(w), s.n, s.k), bs = values(b);
      std::vector<double> before = product(xs, ws, s.m, s.n, s.k);
      std::vector<double> sums = product(xs, ws, s.m, s.n, s.k, true);
      for (std::size_t i = 0; i < before.size(); ++i) {
        const double bias = with_bias ? bs[i % static_cast<std::size_t>(s.n)] : 0;
        before[i] += bias;
        sums[i] += std::abs(bias);
      }
      std::vector<double> after = before;
      for (double& v : after) v = activation_of(activation, v);

      // The layer above: z = h v^T, so dh = dz v times the slope.
      const std::int64_t p = 6;
      const Tensor v = normal({p, s.n}, dtype, g), dz = normal({s.m, p}, dtype, g);
      std::vector<double> slopes = before;
      for (double& slope : slopes) slope = slope_of(activation, slope);
      std::vector<double> dh = product(values(dz), values(v), s.m, s.n, p);
      std::vector<double> dh_sums = product(values(dz), values(v), s.m, s.n, p, true);
      const std::vector<double> unscaled = dh;
      for (std::size_t i = 0; i < dh.size(); ++i) dh[i] *= slopes[i];

      for (const Epilogues e : twins()) {
        const Twin twin(e);
        std::vector<double> off(before.size()), slope_off(before.size());
        if (activation == Kind::gelu_tanh) {
          for (std::size_t i = 0; i < before.size(); ++i) {
            const double t = tanh_error(dtype, e);
            off[i] = gelu_error(before[i], t);
            slope_off[i] = std::abs(unscaled[i]) * gelu_slope_error(before[i], t);
          }
        }
        INFO(to_string(dtype) << " " << s.m << " " << s.n << " " << s.k << " activation "
                              << static_cast<int>(activation) << " twin " << static_cast<int>(e));
        const Tensor dx = there(x), dw = there(w), db = there(b);
        const Tensor y = empty({s.m, s.n}, dtype);
        const auto layout = kernels::dense_saved(activation, s.m, s.n, dtype);
        const Tensor saved = empty(layout.shape, layout.dtype);
        const Stream stream = current_stream(y.device());
        const auto run = [&](const View& keep) {
          kernels::dense_forward(dx.view(), dw.view(), with_bias ? db.view() : ConstView{},
                                 activation, y.mutable_view(), keep, stream);
        };
        run(View{});
        check_close(values(y), after, sums, unit, sum_unit, 4 + 2 * std::sqrt(double(s.k)), off);
        run(saved.mutable_view());
        check_close(values(y), after, sums, unit, sum_unit, 4 + 2 * std::sqrt(double(s.k)), off);

        const Tensor out = full({s.m, s.n}, std::numeric_limits<double>::quiet_NaN(), dtype);
        kernels::dense_data_gradient(there(dz).view(), there(v).view(), activation, saved.view(),
                                     out.mutable_view(), stream);
        // gelu's slope is taken of the rounded value: at most its own steepness times a rounding.
        std::vector<double> slack = dh_sums;
        if (activation == Kind::gelu_tanh)
          for (std::size_t i = 0; i < slack.size(); ++i)
            slack[i] *= 1 + unit / sum_unit * (1 + std::abs(before[i]));
        check_close(values(out), dh, slack, unit, sum_unit, 12, slope_off);
      }
    }
  }
}

}  // namespace

TEST_CASE("dense: forward saves what the data gradient of the layer above needs", "[once]") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const Kind activation = GENERATE(Kind::none, Kind::relu, Kind::gelu_tanh);
  check_forward_and_data_gradient(dtype, activation);
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("dense: the bounds of epilogues hold with a tanh as inexact as the hardware's", "[gpu]") {
  const DType dtype = GENERATE(f32, f16, bf16);
  const cusim::Config before = cusim::config();
  cusim::config().hardware_tanh = true;
  check_forward_and_data_gradient(dtype, Kind::gelu_tanh);
  cusim::config() = before;
}
#endif

TEST_CASE("dense: gradients of weight and bias, stored and added", "[once]") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const bool wide = GENERATE(false, true);
  const DType out = wide ? compute_dtype(dtype) : dtype;
  const double unit = epsilon_of(out), sum_unit = epsilon_of(compute_dtype(dtype));
  Generator g(5);
  for (const Size& s : kSizes) {
    const Tensor x = normal({s.m, s.k}, dtype, g), dy = normal({s.m, s.n}, dtype, g);
    const auto dys = flipped(values(dy), s.m, s.n);
    const auto want = product(dys, values(x), s.n, s.k, s.m);
    const auto sums = product(dys, values(x), s.n, s.k, s.m, true);
    const std::vector<double> ones(static_cast<std::size_t>(s.m), 1);
    const auto want_bias = product(dys, ones, s.n, 1, s.m);
    const auto bias_sums = product(dys, ones, s.n, 1, s.m, true);
    for (const Epilogues e : twins()) {
      const Twin twin(e);
      for (const float dw_beta : {0.f, 1.f}) {
        for (const float db_beta : {0.f, 1.f}) {
          INFO(to_string(dtype) << " -> " << to_string(out) << " " << s.m << " " << s.n << " "
                                << s.k << " twin " << static_cast<int>(e) << " beta " << dw_beta
                                << db_beta);
          const double garbage = std::numeric_limits<double>::quiet_NaN();
          const Tensor dw = full({s.n, s.k}, dw_beta == 0 ? garbage : 2, out);
          const Tensor db = full({s.n}, db_beta == 0 ? garbage : 3, out);
          const Stream stream = current_stream(dw.device());
          kernels::dense_weight_gradient(there(dy).view(), there(x).view(), dw.mutable_view(),
                                         dw_beta, db.mutable_view(), db_beta, stream);
          auto expected = want, magnitude = sums;
          for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] += dw_beta * 2, magnitude[i] += 2;
          const double slack = 4 + 2 * std::sqrt(double(s.m));
          check_close(values(dw), expected, magnitude, unit, sum_unit, slack);
          auto expected_bias = want_bias, bias_magnitude = bias_sums;
          for (std::size_t i = 0; i < expected_bias.size(); ++i)
            expected_bias[i] += db_beta * 3, bias_magnitude[i] += 3;
          check_close(values(db), expected_bias, bias_magnitude, unit, sum_unit, slack);

          const Tensor alone = full({s.n, s.k}, dw_beta == 0 ? garbage : 2, out);
          kernels::dense_weight_gradient(there(dy).view(), there(x).view(), alone.mutable_view(),
                                         dw_beta, View{}, 0, stream);
          check_close(values(alone), expected, magnitude, unit, sum_unit, slack);
        }
      }
    }
  }
}

TEST_CASE("dense: operands of any strides") {
  Generator g(7);
  const DType dtype = GENERATE(f32, f16);
  const double unit = epsilon_of(dtype), sum_unit = epsilon_of(f32);
  const std::int64_t m = 6, n = 10, k = 9;
  const Tensor x = there(normal({k, m}, dtype, g)), dy = there(normal({m, 1}, dtype, g));
  const Tensor xt = transpose(x, 0, 1);    // [m, k], columns together
  const Tensor wide = expand(dy, {m, n});  // stride 0, as the gradient of a sum
  const auto xs = values(xt), dys = flipped(values(wide), m, n);
  for (const Epilogues e : twins()) {
    const Twin twin(e);
    const Tensor dw = empty({n, k}, dtype), db = empty({n}, dtype);
    kernels::dense_weight_gradient(wide.view(), xt.view(), dw.mutable_view(), 0, db.mutable_view(),
                                   0, current_stream(dw.device()));
    check_close(values(dw), product(dys, xs, n, k, m), product(dys, xs, n, k, m, true), unit,
                sum_unit, 12);
    const std::vector<double> ones(static_cast<std::size_t>(m), 1);
    check_close(values(db), product(dys, ones, n, 1, m), product(dys, ones, n, 1, m, true), unit,
                sum_unit, 12);
  }
}

TEST_CASE("dense: empty batches and layers") {
  for (const Epilogues e : twins()) {
    const Twin twin(e);
    const Tensor x = zeros({0, 4}), w = ones({3, 4}), b = ones({3}), y = empty({0, 3});
    const auto layout = kernels::dense_saved(Kind::relu, 0, 3, f32);
    const Tensor saved = empty(layout.shape, layout.dtype);
    const Stream stream = current_stream(y.device());
    kernels::dense_forward(x.view(), w.view(), b.view(), Kind::relu, y.mutable_view(),
                           saved.mutable_view(), stream);
    const Tensor dw = full({3, 4}, 5), db = full({3}, 5);
    kernels::dense_weight_gradient(y.view(), x.view(), dw.mutable_view(), 1, db.mutable_view(), 0,
                                   stream);
    CHECK(values(dw) == std::vector<double>(12, 5));
    CHECK(values(db) == std::vector<double>(3, 0));
    // No features: the bias alone.
    const Tensor z = empty({2, 3});
    kernels::dense_forward(zeros({2, 0}).view(), zeros({3, 0}).view(), b.view(), Kind::gelu_tanh,
                           z.mutable_view(), View{}, stream);
    for (const double v : values(z)) CHECK(v == Approx(activation_of(Kind::gelu_tanh, 1)));
  }
}
