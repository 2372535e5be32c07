// Scans against plain loops in f64: every dtype and layout, around the ends of blocks and chunks,
// special values, and any number of threads.
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/scan.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

/// Calls fn(positions) with the elements of each line along `axis`, in order.
void each_line(const Shape& shape, int axis,
               const std::function<void(const std::vector<std::size_t>&)>& fn) {
  std::int64_t step = 1;
  for (int i = axis + 1; i < shape.size(); ++i) step *= shape[i];
  const std::int64_t n = shape[axis], lines = n > 0 ? shape.product() / n : 0;
  for (std::int64_t l = 0; l < lines; ++l) {
    std::vector<std::size_t> at;
    for (std::int64_t i = 0; i < n; ++i)
      at.push_back(static_cast<std::size_t>(l / step * n * step + i * step + l % step));
    fn(at);
  }
}

using Step = std::function<double(double, double)>;

/// join(join(x0, x1), x2) ... along the axis.
Values scanned(const Values& x, const Shape& shape, int axis, const Step& join) {
  Values y(x.size());
  each_line(shape, axis, [&](const std::vector<std::size_t>& at) {
    for (std::size_t i = 0; i < at.size(); ++i)
      y[at[i]] = i == 0 ? x[at[0]] : join(y[at[i - 1]], x[at[i]]);
  });
  return y;
}

struct Extrema {
  Values values, positions;
};
Extrema extrema(const Values& x, const Shape& shape, int axis, bool largest) {
  Extrema e{Values(x.size()), Values(x.size())};
  each_line(shape, axis, [&](const std::vector<std::size_t>& at) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double v = x[at[i]], b = x[at[best]];
      if (std::isnan(v) || (!std::isnan(b) && (largest ? v >= b : v <= b))) best = i;
      e.values[at[i]] = x[at[best]];
      e.positions[at[i]] = static_cast<double>(best);
    }
  });
  return e;
}

/// The bound of n roundings in the compute dtype, and of one to the dtype. `sizes`: of the terms.
Values bound_of(const Values& sizes, double n, DType t) {
  const double c = epsilon_of(compute_dtype(t));
  const double u = epsilon_of(t);
  Values bound;
  for (const double s : sizes)
    bound.push_back(s * (u + (n + 4) * c) + (t == f16 ? 0x1p-24 : 0) + 1e-300);
  return bound;
}
Values sizes_of(Values x) {
  for (double& v : x) v = std::abs(v);
  return x;
}

/// Line lengths around the ends of registers, blocks and, on a fast device, of chunks.
std::vector<std::int64_t> lengths() {
  if (on_slow_device()) return {1, 31, 257, 300};
  return {1, 2, 15, 17, 63, 65, 255, 257, 1023, 1025, 4097, 16385, 40000};
}

}  // namespace

TEST_CASE("scans: sums and products along a line, and of lines side by side", "[ops]") {
  for (const DType t : {f32, f64, f16, bf16}) {
    for (const std::int64_t n : lengths()) {
      if (t != f32 && n > 20000) continue;
      for (const Shape& shape : {Shape{2, n}, Shape{n, 2}, Shape{n, 9}}) {
        if (shape.product() > 100000) continue;
        const int axis = shape[0] == n ? 0 : 1;
        INFO(to_string(t) << " " << to_string(shape));
        Rng rng(static_cast<std::uint64_t>(n));
        const Values x = rounded(rng.uniforms(shape.product(), -1, 1), t);
        const Tensor tx = make(x, shape, t, n % 2 == 1 ? Layout::transposed : Layout::contiguous);
        const Step plus = [](double a, double b) { return a + b; };
        const double most = static_cast<double>(n);
        const Values sums = scanned(x, shape, axis, plus);
        const Values sizes = scanned(sizes_of(x), shape, axis, plus);
        expect_close("cumsum", values_of(cumsum(tx, axis)), sums,
                     bound_of(sizes, 4 * std::sqrt(most), t));
        if (n > 300) continue;
        Values near;  // a product of hundreds stays in range
        for (const double v : x) near.push_back(1 + v / 64);
        near = rounded(near, t);
        const Values products =
            scanned(near, shape, axis, [](double a, double b) { return a * b; });
        expect_close("cumprod", values_of(cumprod(make(near, shape, t), axis)), products,
                     bound_of(products, most, t));
      }
    }
  }
}

TEST_CASE("scans: a product of equal factors is off by one rounding for each", "[ops]") {
  const std::int64_t n = on_slow_device() ? 300 : 2100;
  const double factor = rounded({1 + 1.0 / 3000}, f32)[0];
  const Values x(static_cast<std::size_t>(n), factor);
  const Values want = scanned(x, {n}, 0, [](double a, double b) { return a * b; });
  expect_close("cumprod", values_of(cumprod(make(x, {n}, f32), 0)), want,
               bound_of(want, static_cast<double>(n), f32));
}

TEST_CASE("scans: logarithms of sums", "[ops]") {
  for (const DType t : {f32, f64, f16}) {
    for (const std::int64_t n : on_slow_device() ? std::vector<std::int64_t>{1, 40, 270}
                                                 : std::vector<std::int64_t>{1, 40, 270, 5000}) {
      for (const Shape& shape : {Shape{2, n}, Shape{n, 9}}) {
        const int axis = shape[0] == n ? 0 : 1;
        Rng rng(5);
        // Beyond the range of exp() in f32, down and up.
        Values x = rng.uniforms(shape.product(), -200, 200);
        x = rounded(x, t);
        const Values want = scanned(x, shape, axis, [](double a, double b) {
          return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
        });
        Values bound;
        for (const double w : want)
          bound.push_back(epsilon_of(t) * std::abs(w) +
                          epsilon_of(compute_dtype(t)) *
                              (64 + 2 * std::abs(w) * std::sqrt(static_cast<double>(n))));
        expect_close(to_string(shape), values_of(logcumsumexp(make(x, shape, t), axis)), want,
                     bound);
      }
    }
  }
}

TEST_CASE("scans: integers add up and multiply in 64 bits", "[ops]") {
  for (const DType t : {i64, i32, u8, boolean}) {
    for (const Shape& shape : {Shape{3, 65}, Shape{65, 3}, Shape{70, 9}}) {
      Rng rng(3);
      Values x(static_cast<std::size_t>(shape.product()));
      for (double& v : x) v = static_cast<double>(rng.below(t == boolean ? 2 : 3));
      for (const int axis : {0, 1}) {
        const Tensor sums = cumsum(make(x, shape, t, Layout::stepped), axis);
        CHECK(sums.dtype() == i64);
        expect_same("cumsum", values_of(sums),
                    scanned(x, shape, axis, [](double a, double b) { return a + b; }));
        expect_same("cumprod", values_of(cumprod(make(x, shape, t), axis)),
                    scanned(x, shape, axis, [](double a, double b) { return a * b; }));
      }
    }
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(cumsum(tensor({most, std::int64_t{1}}), 0).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{most, std::numeric_limits<std::int64_t>::min()});
}

TEST_CASE("scans: extrema, the last of equal elements, NaN above and below all", "[ops]") {
  for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
      for (const std::int64_t n : lengths()) {
        if (n > 20000 && (t != f32 || layout != Layout::contiguous)) continue;
        for (const Shape& shape : {Shape{2, n}, Shape{n, 9}}) {
          if (shape.product() > 100000) continue;
          const int axis = shape[0] == n ? 0 : 1;
          Rng rng(static_cast<std::uint64_t>(n));
          Values x(static_cast<std::size_t>(shape.product()));
          for (double& v : x) v = static_cast<double>(rng.below(t == boolean ? 2 : 90));
          if (is_floating(t)) {
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? -x[i] : x[i];
            if (n > 200)
              for (std::size_t i = x.size() / 2; i < x.size(); i += 97) x[i] = kNaN;
          }
          const Tensor tx = make(x, shape, t, layout);
          for (const bool largest : {true, false}) {
            INFO(to_string(t) << " " << to_string(shape) << " " << to_string(layout));
            const Extrema want = extrema(x, shape, axis, largest);
            const Sorted got = largest ? cummax(tx, axis) : cummin(tx, axis);
            CHECK(got.values.dtype() == t);
            expect_same("values", values_of(got.values), want.values);
            expect_same("positions", values_of(got.indices), want.positions);
          }
        }
      }
    }
  }
}

TEST_CASE("scans: special values", "[ops]") {
  for (const DType t : {f32, f64, f16}) {
    const Tensor x = make({-kInf, -kInf, 1, kInf, 2, kNaN, 3}, {7}, t);
    const Sorted top = cummax(x, 0), low = cummin(x, 0);
    expect_same("cummax", values_of(top.values), {-kInf, -kInf, 1, kInf, kInf, kNaN, kNaN});
    CHECK(values_of(top.indices) == Values{0, 1, 2, 3, 3, 5, 5});
    expect_same("cummin", values_of(low.values), {-kInf, -kInf, -kInf, -kInf, -kInf, kNaN, kNaN});
    CHECK(values_of(low.indices) == Values{0, 1, 1, 1, 1, 5, 5});
    expect_same("logcumsumexp", values_of(logcumsumexp(x, 0)),
                {-kInf, -kInf, 1, kInf, kInf, kNaN, kNaN});
    expect_same("cumsum", values_of(cumsum(x, 0)), {-kInf, -kInf, -kInf, kNaN, kNaN, kNaN, kNaN});
    // -0 equals 0, so the later one is taken.
    expect_same("zeros", values_of(cummax(make({0.0, -0.0}, {2}, t), 0).values), {0.0, -0.0});
  }
  CHECK(cummax(full({}, 3), 0).indices.shape() == Shape{});
  CHECK(cumsum(empty({0}, u8), 0).dtype() == i64);
}

TEST_CASE("scans: gradients beside zeros, infinities and large numbers", "[ops]") {
  const auto gradient = [](Tensor x, const std::function<Tensor(const Tensor&)>& fn) {
    x.set_requires_grad();
    fn(x).sum().backward();
    return values_of(x.grad());
  };
  // d/dx[i] of x0 + x0 x1 + x0 x1 x2 + ..., by hand; PyTorch 2.15 gives the same.
  const auto products = [](const Tensor& x) { return cumprod(x, 0); };
  CHECK(gradient(make({2, 0, 3, 4}, {4}), products) == Values{1, 32, 0, 0});
  CHECK(gradient(make({0, 0, 3}, {3}), products) == Values{1, 0, 0});
  const auto product = [](const Tensor& x) { return prod(x); };
  CHECK(gradient(make({2, 0, 3, 4}, {2, 2}), product) == Values{0, 24, 0, 0});
  CHECK(gradient(make({2, 0, 3, 0}, {4}), product) == Values{0, 0, 0, 0});
  const auto logs = [](const Tensor& x) { return logcumsumexp(x, 0); };
  CHECK(gradient(make({-1000, 1000}, {2}), logs) == Values{1, 1});
  CHECK(gradient(make({1000, -1000}, {2}), logs) == Values{2, 0});
  CHECK(gradient(make({-kInf, 0}, {2}), logs) == Values{0, 1});  // PyTorch gives NaN
  const auto log_of_all = [](const Tensor& x) { return logsumexp(x); };
  CHECK(gradient(make({-kInf, 0}, {2}), log_of_all) == Values{0, 1});
  CHECK(gradient(make({-kInf, -kInf}, {2}), log_of_all) == Values{0, 0});  // PyTorch gives NaN
  // Two positions with the same maximum: the gradient goes to the later one from there on.
  const auto top = [](const Tensor& x) { return cummax(x, 0).values; };
  CHECK(gradient(make({1, 3, 3, 2}, {4}), top) == Values{1, 1, 2, 0});
}

TEST_CASE("scans: a gradient is added to what is there", "[ops]") {
  for (const DType t : {f32, f64, f16}) {
    const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}, t).set_requires_grad();
    for (int pass = 0; pass < 2; ++pass) {
      cumsum(x, 1).sum().backward();
      cumsum(x, 0).sum().backward();
    }
    CHECK(values_of(x.grad()) == Values{10, 8, 6, 8, 6, 4});
  }
}

TEST_CASE("scans: the bits do not depend on the number of threads", "[host]") {
  for (const DType t : {f32, f16, i64}) {
    for (const Shape& shape :
         {Shape{100001}, Shape{2, 40000}, Shape{20000, 3}, Shape{10000, 9}, Shape{300, 300}}) {
      for (int axis = 0; axis < shape.size(); ++axis) {
        Rng rng(7);
        Values values = rng.uniforms(shape.product(), -1, 1);
        if (t == i64)
          for (double& v : values) v = std::floor(100 * v);
        const Tensor x = make(values, shape, t);
        Values first;
        for (const int n : {1, 2, 5}) {
          const Threads threads(n);
          const Sorted top = cummax(x, axis);
          Values all;
          std::vector<Tensor> results = {cumsum(x, axis), cumprod(x, axis), top.values,
                                         top.indices};
          if (t != i64) results.push_back(logcumsumexp(x, axis));
          for (const Tensor& y : results) {
            const Values more = values_of(y);
            all.insert(all.end(), more.begin(), more.end());
          }
          if (n == 1) first = all;
          expect_same(to_string(shape) + " threads " + std::to_string(n), all, first);
        }
      }
    }
  }
}

TEST_CASE("scans: a short line has the same bits beside others as alone", "[host]") {
  for (const DType t : {f32, f64, bf16, i64}) {
    for (std::int64_t n = 1; n <= 18; ++n) {
      Rng rng(static_cast<std::uint64_t>(n));
      Values values = rng.uniforms(2 * 11 * n, -2, 2);
      values[3] = std::nan("");
      values[static_cast<std::size_t>(n)] = -std::numeric_limits<double>::infinity();
      if (t == i64)
        for (double& v : values) v = v > 0 ? 3 : -2;
      const Tensor wide = make(values, {11, 2 * n}, t);
      for (const Tensor& x :
           {slice(wide, 1, 0, n), contiguous(slice(wide, 1, 0, n)), slice(wide, 1, 1, 2 * n, 2)}) {
        const auto results = [&](const Tensor& lines) {
          Tensor leaf = lines.detach();
          const Sorted top = cummax(leaf, 1), least = cummin(leaf, 1);
          std::vector<Tensor> all = {cumprod(leaf, 1), top.values, top.indices, least.values};
          if (t == i64) return all.push_back(cumsum(leaf, 1)), all;
          leaf.set_requires_grad();
          all.push_back(logcumsumexp(leaf, 1));
          all.push_back(cumsum(leaf, 1));
          backward(all.back(), {.initial_gradient = lines});
          backward(cumprod(leaf, 1), {.initial_gradient = lines});
          all.push_back(leaf.grad());
          return all;
        };
        std::vector<Values> alone;
        for (std::int64_t i = 0; i < x.size(0); ++i) {
          const auto line = results(slice(x, 0, i, i + 1));
          alone.resize(line.size());
          for (std::size_t k = 0; k < line.size(); ++k)
            for (const double v : values_of(line[k])) alone[k].push_back(v);
        }
        const auto beside = results(x);
        for (std::size_t k = 0; k < beside.size(); ++k)
          expect_same(to_string(t) + std::string(" length ") + std::to_string(n) + " result " +
                          std::to_string(k),
                      values_of(beside[k]), alone[k]);
      }
    }
  }
}

TEST_CASE("scans: a long line is cut, forward and backward", "[ops]") {
  // Two chunks on either backend; whole numbers, so that sums are exact.
  const std::int64_t n = on_slow_device() ? 8400 : 70000;
  Values x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>(i * 7 % 11 - 5));
  const Tensor tx = make(x, {n}, f32).set_requires_grad();
  const Tensor y = cumsum(tx, 0);
  expect_same("cumsum", values_of(y.detach()),
              scanned(x, {n}, 0, [](double a, double b) { return a + b; }));
  y.sum().backward();
  Values want;
  for (std::int64_t i = 0; i < n; ++i) want.push_back(static_cast<double>(n - i));
  expect_same("gradient", values_of(tx.grad()), want);
  const Extrema top = extrema(x, {n}, 0, true);
  const Sorted got = cummax(tx.detach(), 0);
  expect_same("cummax", values_of(got.indices), top.positions);
}

TEST_CASE("scans: the linear scan, and sums into strided memory", "[ops]") {
  const Stream stream = current_stream(default_device());
  for (const std::int64_t n : on_slow_device() ? std::vector<std::int64_t>{300}
                                               : std::vector<std::int64_t>{1, 300, 5000}) {
    for (const Shape& shape : {Shape{2, n}, Shape{n, 9}}) {
      const int axis = shape[0] == n ? 0 : 1;
      Rng rng(9);
      const Values a = rounded(rng.uniforms(shape.product(), -0.9, 0.9), f32);
      const Values b = rounded(rng.uniforms(shape.product(), -1, 1), f32);
      Values want(a.size()), before = rounded(rng.uniforms(shape.product(), -1, 1), f32);
      each_line(shape, axis, [&](const std::vector<std::size_t>& at) {
        double last = 0;
        for (std::size_t i = at.size(); i-- > 0;) want[at[i]] = last = b[at[i]] + a[at[i]] * last;
      });
      const Tensor out = make(before, shape, f32, Layout::stepped);
      kernels::scan_linear(make(a, shape, f32, Layout::transposed).view(),
                           make(b, shape, f32).view(), out.mutable_view(), axis, stream);
      expect_close("linear", values_of(out), want, 1e-5);
      const Tensor sums = make(before, shape, f32, Layout::stepped);
      kernels::scan(kernels::ScanOp::sum, make(b, shape, f32).view(), sums.mutable_view(), axis,
                    true, 1, stream);
      Values added(b.size());
      each_line(shape, axis, [&](const std::vector<std::size_t>& at) {
        double last = 0;
        for (std::size_t i = at.size(); i-- > 0;) {
          last += b[at[i]];
          added[at[i]] = before[at[i]] + last;
        }
      });
      expect_close("reversed sums", values_of(sums), added, 1e-6 * static_cast<double>(n));
    }
  }
}

}  // namespace firn::testing
