// Reductions against plain double arithmetic: lengths around every block size, layouts, dtypes,
// thread counts, and the gradient of ties.
#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

/// Calls fn(position in the result, position in x) for every element of x in row-major order.
template <class Fn>
void each_element(const Shape& shape, const Axes& axes, Fn&& fn) {
  Dims at = Dims::filled(shape.size(), 0);
  const std::int64_t n = shape.product();
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t out = 0;
    for (int a = 0; a < shape.size(); ++a)
      if (!axes.contains(a)) out = out * shape[a] + at[a];
    fn(static_cast<std::size_t>(out), static_cast<std::size_t>(i));
    for (int a = shape.size() - 1; a >= 0 && ++at[a] == shape[a]; --a) at[a] = 0;
  }
}

std::size_t outputs(const Shape& shape, const Axes& axes) {
  std::int64_t n = 1;
  for (int a = 0; a < shape.size(); ++a)
    if (!axes.contains(a)) n *= shape[a];
  return static_cast<std::size_t>(n);
}

/// Sum of the values, or of their magnitudes.
std::vector<double> sums(const std::vector<double>& x, const Shape& shape, const Axes& axes,
                         bool magnitudes = false) {
  std::vector<long double> y(outputs(shape, axes), 0);
  each_element(shape, axes,
               [&](std::size_t o, std::size_t i) { y[o] += magnitudes ? std::abs(x[i]) : x[i]; });
  return {y.begin(), y.end()};
}

std::vector<double> extrema(const std::vector<double>& x, const Shape& shape, const Axes& axes,
                            bool largest_one) {
  std::vector<double> y(outputs(shape, axes), largest_one ? -kInf : kInf);
  each_element(shape, axes, [&](std::size_t o, std::size_t i) {
    if (std::isnan(y[o])) return;
    if (std::isnan(x[i]) || (largest_one ? x[i] > y[o] : x[i] < y[o])) y[o] = x[i];
  });
  return y;
}

/// (4 sqrt K + 2) u_compute sum|x| + u_dtype |y|: the bound of every sum in this library.
std::vector<double> sum_bound(const std::vector<double>& y, const std::vector<double>& magnitude,
                              double terms, DType t, double scale = 1) {
  std::vector<double> bound(y.size());
  const double compute = epsilon_of(compute_dtype(t));
  for (std::size_t i = 0; i < y.size(); ++i) {
    bound[i] = (4 * std::sqrt(terms) + 2) * compute * magnitude[i] * scale +
               epsilon_of(t) * std::abs(y[i]) + (t == f16 ? 0x1p-25 : 0);
  }
  return bound;
}

void check_sum(const Shape& shape, const Axes& axes, DType t, Layout layout = Layout::contiguous) {
  const std::string what = "sum of " + to_string(shape) + " over " + to_string(axes) + " " +
                           to_string(t) + " " + to_string(layout);
  Rng rng(seed_of(to_string(shape)));
  auto values = rounded(rng.uniforms(shape.product(), -1, 2), t);
  if (layout == Layout::expanded) values = repeated_along_first_axis(values, shape);
  const auto want = sums(values, shape, axes);
  const double terms =
      want.empty() ? 0 : static_cast<double>(values.size()) / static_cast<double>(want.size());
  expect_close(what, values_of(sum(make(values, shape, t, layout), axes)), want,
               sum_bound(want, sums(values, shape, axes, true), terms, t));
}

const std::vector<std::int64_t> kLengths = {0,    1,    2,    7,    15,   16,    17,    31,
                                            33,   63,   64,   65,   127,  129,   511,   1023,
                                            1025, 4095, 4096, 4097, 8193, 32768, 32769, 65537};

TEST_CASE("sum of a whole tensor of every length") {
  for (const DType t : {f32, f64, f16, bf16})
    for (const std::int64_t n : kLengths) check_sum({n}, {0}, t);
  check_sum({1 << 20}, {0}, f32);
}

TEST_CASE("sum of rows of every length") {
  for (const DType t : {f32, f64, f16})
    for (const std::int64_t n : kLengths) check_sum({3, n}, {1}, t);
  for (const std::int64_t n : {1, 5, 10, 64, 300}) check_sum({5000, n}, {1}, f32);
}

TEST_CASE("sum of columns of every length", "[once]") {
  for (const DType t : {f32, f64, f16})
    for (const std::int64_t n : kLengths)
      for (const std::int64_t width : {1, 2, 3, 10, 32, 33, 70})
        if (n * width < 700000) check_sum({n, width}, {0}, t);
  for (const std::int64_t width : {255, 256, 257, 1025}) check_sum({300, width}, {0}, f32);
  check_sum({70000, 20}, {0}, f32, Layout::stepped);  // more than 256 partial rows
}

TEST_CASE("sum over every choice of axes in every layout") {
  const Shape shape{6, 5, 4, 18};
  for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped,
                              Layout::offset, Layout::expanded}) {
    for (int set = 1; set < 16; ++set) {
      Axes axes;
      for (int a = 0; a < 4; ++a)
        if (set >> a & 1) axes.push_back(a);
      for (const DType t : {f32, f64, f16}) check_sum(shape, axes, t, layout);
    }
  }
}

TEST_CASE("sum over axes of size 1 and 0") {
  const Tensor x = make({1, 2, 3}, {1, 3, 1}, f32);
  expect_same("size 1", values_of(sum(x, {0, 2})), {1, 2, 3});
  CHECK(sum(x, {0, 2}).shape() == Shape{3});
  CHECK(sum(x, {0, -1}, true).shape() == (Shape{1, 3, 1}));
  CHECK(sum(x).shape() == Shape{});
  expect_same("scalar", values_of(sum(make({4}, {}, f32))), {4});
  const Tensor none = zeros({2, 0, 3});
  expect_same("empty axis", values_of(sum(none, {1})), std::vector<double>(6, 0.0));
  CHECK(sum(none, {0}).shape() == (Shape{0, 3}));
  expect_same("all of nothing", values_of(sum(none)), {0});
  expect_same("mean of nothing", values_of(mean(none)), {kNaN});
}

TEST_CASE("integers and bools are summed exactly in i64") {
  for (const DType t : {i32, i64, u8, boolean}) {
    for (const Shape& shape : {Shape{1025}, Shape{300, 40}, Shape{3, 5, 7}, Shape{70000}}) {
      Rng rng(5);
      std::vector<double> values(static_cast<std::size_t>(shape.product()));
      for (double& v : values) v = static_cast<double>(rng.below(t == boolean ? 2 : 200));
      const Tensor x = make(values, shape, t);
      for (int a = 0; a < shape.size(); ++a) {
        const Tensor y = sum(x, {a});
        CHECK(y.dtype() == i64);
        expect_same(to_string(t), values_of(y), sums(values, shape, {a}));
        CHECK(max(x, {a}).dtype() == t);
        expect_same(to_string(t), values_of(max(x, {a})), extrema(values, shape, {a}, true));
        expect_same(to_string(t), values_of(min(x, {a})), extrema(values, shape, {a}, false));
      }
    }
  }
  const std::int64_t big = std::int64_t{1} << 53;
  const Tensor y = sum(tensor<std::int64_t>({big, 1, 1, 1}));
  CHECK(y.to_vector<std::int64_t>()[0] == big + 3);
}

TEST_CASE("a sum of f16 is rounded once") {
  const Tensor x = ones({10000}, f16);
  CHECK(sum(x).item() == 10000);  // 2048 + 1 is 2048 in f16: a running f16 sum would stop there
  CHECK(sum(x).dtype() == f16);
  CHECK(mean(x).item() == 1);
  CHECK(sum(ones({70000}, f16)).item() == kInf);
  CHECK(mean(ones({70000}, f16)).item() == 1);
}

TEST_CASE("max and min over every choice of axes, with infinities and NaN") {
  const Shape shape{5, 6, 33};
  for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
    for (const DType t : {f32, f64, bf16}) {
      for (int set = 1; set < 8; ++set) {
        Axes axes;
        for (int a = 0; a < 3; ++a)
          if (set >> a & 1) axes.push_back(a);
        Rng rng(static_cast<std::uint64_t>(set));
        auto values = rounded(rng.uniforms(shape.product(), -3, 3), t);
        for (int pass = 0; pass < 3; ++pass) {
          const Tensor x = make(values, shape, t, layout);
          const std::string what = to_string(axes) + " pass " + std::to_string(pass);
          expect_same("max " + what, values_of(max(x, axes)), extrema(values, shape, axes, true));
          expect_same("min " + what, values_of(min(x, axes)), extrema(values, shape, axes, false));
          values[71] = pass == 0 ? kInf : kNaN;
          values[402] = -kInf;
        }
      }
    }
  }
  expect_same("all -inf", values_of(max(make({-kInf, -kInf}, {2}, f32))), {-kInf});
}

TEST_CASE("argmax: the first of the largest, NaN above all") {
  for (const DType t : {f32, f64, f16, i32, i64, u8, boolean}) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
      for (const std::int64_t n : {1, 2, 10, 33, 1023, 1025, 3000}) {
        for (const Shape& shape : {Shape{n, 5}, Shape{5, n}, Shape{n, 20}, Shape{2, n, 3}}) {
          Rng rng(static_cast<std::uint64_t>(n));
          std::vector<double> values(static_cast<std::size_t>(shape.product()));
          for (double& v : values) v = static_cast<double>(rng.below(t == boolean ? 2 : 90));
          if (is_floating(t) && n > 10)
            for (std::size_t i = 7; i < values.size(); i += 97) values[i] = kNaN;
          const Tensor x = make(values, shape, t, layout);
          for (int a = 0; a < shape.size(); ++a) {
            const auto top = extrema(values, shape, {a}, true);
            std::vector<double> want(top.size(), -1);
            std::int64_t step = 1;
            for (int i = a + 1; i < shape.size(); ++i) step *= shape[i];
            each_element(shape, {a}, [&](std::size_t o, std::size_t i) {
              const bool same = std::isnan(top[o]) ? std::isnan(values[i]) : values[i] == top[o];
              if (same && want[o] < 0)
                want[o] = static_cast<double>(static_cast<std::int64_t>(i) / step % shape[a]);
            });
            expect_same(to_string(shape) + " axis " + std::to_string(a), values_of(argmax(x, a)),
                        want);
          }
        }
      }
    }
  }
}

TEST_CASE("the bits of a reduction do not depend on the number of threads", "[host]") {
  struct Case {
    Shape shape;
    Axes axes;
  };
  for (const DType t : {f32, f16, f64}) {
    for (const Case& c : {Case{{300001}, {0}}, Case{{700, 513}, {0}}, Case{{513, 700}, {1}},
                          Case{{5, 300, 200}, {1}}, Case{{70001, 3}, {0}}, Case{{70001, 3}, {1}},
                          Case{{40, 30, 80}, {0, 2}}, Case{{3, 40000}, {1}}}) {
      Rng rng(11);
      const Tensor x = make(rng.uniforms(c.shape.product(), -1, 1), c.shape, t);
      std::vector<double> first;
      for (const int n : {1, 2, 3}) {
        const Threads threads(n);
        auto all = values_of(sum(x, c.axes));
        for (const Tensor& y : {max(x, c.axes), norm(x, c.axes), var(x, c.axes)}) {
          const auto more = values_of(y);
          all.insert(all.end(), more.begin(), more.end());
        }
        if (n == 1) first = all;
        expect_same(to_string(c.shape) + " with threads " + std::to_string(n), all, first);
      }
    }
  }
}

/// Returns x as it is, with gaps between elements, and with gaps between rows.
std::vector<Tensor> laid_out(const Tensor& x) {
  const std::int64_t n = x.shape().back();
  std::vector<Tensor> all = {x};
  for (const std::int64_t step : {1, 2}) {
    Shape wide = x.shape();
    wide.back() = 2 * n;
    all.push_back(slice(zeros(wide, x.dtype()), -1, 0, step * n, step));
    all.back().copy_(x);
  }
  return all;
}

TEST_CASE("a short row has the same bits beside others as alone", "[host]") {
  using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
  const auto check = [](const std::string& what, const Tensor& x, auto&& op) {
    std::vector<double> alone;
    for (std::int64_t i = 0; i < x.size(0); ++i)
      for (const double v : values_of(op(slice(x, 0, i, i + 1)))) alone.push_back(v);
    expect_same(what + " of " + to_string(x.shape()) + " " + to_string(x.dtype()), values_of(op(x)),
                alone);
  };
  for (const DType t : {f32, f64, bf16, f16, i64, DType::boolean}) {
    for (std::int64_t n = 1; n <= 70; n += n < 20 ? 1 : 11) {
      for (const Shape& shape : {Shape{19, n}, Shape{17, n, 3}}) {
        Rng rng(static_cast<std::uint64_t>(n));
        auto values = rng.uniforms(shape.product(), -2, 2);
        values[3] = is_floating(t) ? kNaN : 1;
        values[static_cast<std::size_t>(n) + 2] = is_floating(t) ? -kInf : 0;
        for (const Tensor& x : laid_out(cast(make(values, shape, f64), t))) {
          for (const Reduction op :
               {Reduction(sum), Reduction(prod), Reduction(any), Reduction(all)})
            check("reduction", x, [&](const Tensor& v) { return op(v, {1}, false); });
          if (t == DType::boolean) continue;
          for (const Reduction op : {Reduction(max), Reduction(min)})
            check("extremum", x, [&](const Tensor& v) { return op(v, {1}, false); });
          check("argmax", x, [](const Tensor& v) { return argmax(v, 1); });
          if (!is_floating(t)) continue;
          check("norm", x, [](const Tensor& v) { return norm(v, {1}); });
          check("gradient of max", x, [](const Tensor& v) {
            Tensor leaf = v.detach();
            leaf.set_requires_grad();
            backward(sum(max(leaf, {1})));
            return leaf.grad();
          });
        }
      }
    }
  }
}

TEST_CASE("the reduction kernel scales, accumulates and writes with strides") {
  for (const Shape& shape : {Shape{300, 20}, Shape{700, 3}, Shape{9, 300}, Shape{40000, 2}}) {
    for (const int axis : {0, 1}) {
      Rng rng(3);
      const auto values = rounded(rng.uniforms(shape.product(), -1, 1), f16);
      const Tensor x = make(values, shape, f16);
      const auto total = sums(values, shape, {axis});
      std::vector<double> want(total), before(rng.uniforms(shape[1 - axis], -1, 1));
      before = rounded(before, f32);
      for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[i] + 0.5 * total[i];
      Shape kept = shape;
      kept[axis] = 1;
      // Every second column of a wider matrix: the elements between must stay.
      const Tensor y = make(before, kept, f32, Layout::stepped);
      kernels::reduce(kernels::ReduceOp::sum, x.view(), y.mutable_view(), 0.5, 1.f,
                      current_stream(default_device()));
      const auto bound =
          sum_bound(want, sums(values, shape, {axis}, true), static_cast<double>(shape[axis]), f32);
      expect_close(to_string(shape), values_of(y), want, bound);
      // With beta 0 what was there is not read.
      const Tensor fresh = full(kept, kNaN, f64);
      kernels::reduce(kernels::ReduceOp::sum, x.view(), fresh.mutable_view(), 1, 0.f,
                      current_stream(default_device()));
      expect_close("beta 0", values_of(fresh), total,
                   sum_bound(total, sums(values, shape, {axis}, true),
                             static_cast<double>(shape[axis]), f32));
    }
  }
}

TEST_CASE("mean, var and norm") {
  const Shape shape{7, 33, 5};
  for (const DType t : {f64, f32, f16}) {
    for (const Axes& axes : {Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}, Axes{1, 2}, Axes{0, 1, 2}}) {
      Rng rng(17);
      const auto x = rounded(rng.uniforms(shape.product(), 2, 3), t);
      const Tensor tx = make(x, shape, t, Layout::transposed);
      auto want = sums(x, shape, axes);
      const double n = static_cast<double>(x.size()) / static_cast<double>(want.size());
      for (double& v : want) v /= n;
      const double u = epsilon_of(t), c = epsilon_of(compute_dtype(t));
      expect_close("mean", values_of(mean(tx, axes)), want, 4 * u + 3 * (4 * std::sqrt(n) + 2) * c);
      std::vector<double> spread(want.size(), 0), length(want.size(), 0);
      each_element(shape, axes, [&](std::size_t o, std::size_t i) {
        spread[o] += (x[i] - want[o]) * (x[i] - want[o]);
        length[o] += x[i] * x[i];
      });
      for (std::size_t i = 0; i < want.size(); ++i) {
        spread[i] /= n - 1;
        length[i] = std::sqrt(length[i]);
      }
      expect_close("var", values_of(var(tx, axes)), spread, u + 40 * c);
      expect_close("norm", values_of(norm(tx, axes)), length, 2 * u * largest(length) + 1e3 * c);
    }
  }
  const Tensor one = make({3}, {1}, f32);
  CHECK(std::isnan(var(one).item()));
  CHECK(var(one, {}, 0).item() == 0);
  CHECK(var(full({1000}, 0.1)).item() == 0);  // 0.1 has a rounding error, and so has its mean
  // The mean is far larger than the spread: the sum of squares alone would cancel.
  CHECK(var(make({10001, 10002, 10003}, {3}, f32)).item() == 1);
}

TEST_CASE("ties and NaN share the gradient of max and min evenly") {
  for (const bool largest_one : {true, false}) {
    for (const DType t : {f64, f32, f16}) {
      for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
        for (const Axes& axes :
             {Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}, Axes{1, 2}, Axes{0, 1, 2}}) {
          const Shape shape{4, 9, 20};
          Rng rng(23);
          std::vector<double> x(static_cast<std::size_t>(shape.product()));
          for (double& v : x) v = static_cast<double>(rng.below(6));
          x[40] = kNaN;
          const auto y = extrema(x, shape, axes, largest_one);
          std::vector<double> count(y.size(), 0), seed(y.size());
          for (double& v : seed) v = static_cast<double>(1 + rng.below(4));
          const auto tied = [&](std::size_t o, std::size_t i) {
            return x[i] == y[o] || std::isnan(x[i]);
          };
          each_element(shape, axes, [&](std::size_t o, std::size_t i) { count[o] += tied(o, i); });
          std::vector<double> want(x.size(), 0);
          each_element(shape, axes, [&](std::size_t o, std::size_t i) {
            if (tied(o, i)) want[i] = 2 * seed[o] / count[o];
          });
          Tensor tx = make(x, shape, t, layout);
          tx.set_requires_grad();
          const Tensor ty = largest_one ? max(tx, axes) : min(tx, axes);
          const Tensor ts = make(seed, ty.shape(), t);
          backward(ty, {.initial_gradient = ts, .retain_graph = true});
          backward(ty, {.initial_gradient = ts});  // accumulates
          expect_close(to_string(axes), values_of(tx.grad()), want, 8 * epsilon_of(t) * 8);
        }
      }
    }
  }
}

TEST_CASE("the gradient of norm is 0 where the norm is 0") {
  Tensor x = make({0, 0, 3, 4}, {2, 2}, f32);
  x.set_requires_grad();
  backward(sum(norm(x, {1})));
  expect_close("norm", values_of(x.grad()), {0, 0, 0.6, 0.8}, 1e-7);
}

TEST_CASE("reductions refuse what has no result, naming the shape") {
  const Tensor none = zeros({3, 0});
  CHECK(error_of([&] { max(none, {1}); }).find("[max]") == 0);
  CHECK(error_of([&] { min(none); }).find("[3, 0] f32") != std::string::npos);
  CHECK(error_of([&] { argmax(none, 1); }).find("[argmax]") == 0);
  CHECK(max(none, {0}).shape() == Shape{0});
  CHECK(argmax(none, 0).shape() == Shape{0});
  CHECK(error_of([&] { mean(zeros({2}, i64)); }).find("[mean]") == 0);
  CHECK(error_of([&] { sum(none, {2}); }).find("[sum]") == 0);
  CHECK(error_of([&] { sum(Tensor()); }).find("[sum]") == 0);
}

}  // namespace
}  // namespace firn::testing
