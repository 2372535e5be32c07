// Row operations on the device under test against the same on the CPU in f64: row lengths around
// every choice of a CUDA kernel (a warp or a block for a row, registers or not), all dtypes, rows
// that begin at odd addresses, and the bits in every order of threads and blocks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/rows.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// 4096 f32 or 8192 f16 elements are the most that one block keeps of a row of 512 threads; 65537
/// is too long for registers in every dtype.
const std::vector<std::int64_t> kLengths = {1,   2,   31,   32,   33,   255,
                                            511, 513, 1023, 1024, 1025, 4097};

struct Case {
  DType dtype;
  Layout layout;
  std::int64_t rows, n;
  std::string name() const {
    return std::to_string(rows) + " x " + std::to_string(n) + " " + std::string(to_string(dtype)) +
           " " + to_string(layout);
  }
};

/// Every length in every dtype, aligned and not, and one very long row.
void for_each_case(const std::function<void(const Case&)>& check) {
  for (const DType t : {f32, f16, bf16, f64}) {
    for (const std::int64_t n : kLengths) check({t, Layout::contiguous, n < 600 ? 7 : 2, n});
    for (const std::int64_t n : {31, 1024}) check({t, Layout::offset, 3, n});
    check({t, Layout::contiguous, 1, 65537});
  }
}

/// |error| <= (4 sqrt(n) + 2) u_compute size + u_dtype |y|, per element; `size` bounds what is
/// added up on the way.
std::vector<double> bound_of(const std::vector<double>& y, const Case& c, double size) {
  const double n = static_cast<double>(c.n);
  std::vector<double> bound(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    bound[i] = (4 * std::sqrt(n) + 2) * epsilon_of(compute_dtype(c.dtype)) * size +
               2 * epsilon_of(c.dtype) * std::abs(y[i]) + (c.dtype == f16 ? 0x1p-24 : 1e-38);
  }
  return bound;
}

Tensor on_cpu(const std::vector<double>& values, const Shape& shape) {
  return make(values, shape, f64, Layout::contiguous, Device::cpu());
}

/// A gradient sink with `before` in it: the gradient is added to that.
Tensor sink(const std::vector<double>& before, const Shape& shape, DType t) {
  return make(before, shape, t);
}

TEST_CASE("softmax and its gradient on a device agree with f64 on the CPU for every row length") {
  for_each_case([](const Case& c) {
    Rng rng(seed_of(c.name()));
    const Shape shape{c.rows, c.n};
    const auto x = rounded(rng.uniforms(c.rows * c.n, -8, 8), c.dtype);
    const auto dy = rounded(rng.uniforms(c.rows * c.n, -1, 1), c.dtype);
    const Stream stream = current_stream(default_device()), host{Device::cpu()};
    for (const bool log : {false, true}) {
      const std::string what = c.name() + (log ? " log" : "");
      const Tensor want = empty(shape, f64, Device::cpu()), y = empty(shape, c.dtype);
      kernels::softmax(on_cpu(x, shape).view(), want.mutable_view(), log, host);
      const Tensor tx = make(x, shape, c.dtype, c.layout);
      kernels::softmax(tx.view(), y.mutable_view(), log, stream);
      const auto values = values_of(want);
      expect_close(what, values_of(y), values, bound_of(values, c, log ? 16 : largest(values)));

      // The gradient of the rounded result, into a sink of either dtype that holds something.
      const auto saved = rounded(values, c.dtype);
      const auto before = rounded(rng.uniforms(c.rows * c.n, -1, 1), c.dtype);
      for (const DType t : {c.dtype, compute_dtype(c.dtype)}) {
        const Tensor want_dx = on_cpu(before, shape), dx = sink(before, shape, t);
        kernels::softmax_backward(on_cpu(dy, shape).view(), on_cpu(saved, shape).view(),
                                  want_dx.mutable_view(), log, 1, host);
        const Tensor tdy = make(dy, shape, c.dtype, c.layout), ty = make(saved, shape, c.dtype);
        kernels::softmax_backward(tdy.view(), ty.view(), dx.mutable_view(), log, 1, stream);
        const auto g = values_of(want_dx);
        expect_close("gradient " + what, values_of(dx), g,
                     bound_of(g, c, std::max(1.0, std::sqrt(static_cast<double>(c.n)))));
      }
    }
  });
}

void check_norms(const Case& c) {
  Rng rng(seed_of(c.name()));
  const Shape shape{c.rows, c.n};
  const DType compute = compute_dtype(c.dtype);
  const auto x = rounded(rng.uniforms(c.rows * c.n, -2, 3), c.dtype);
  const auto dy = rounded(rng.uniforms(c.rows * c.n, -1, 1), c.dtype);
  const auto w = rounded(rng.uniforms(c.n, 0.5, 2), c.dtype);
  const auto b = rounded(rng.uniforms(c.n, -1, 1), c.dtype);
  const auto before = rounded(rng.uniforms(c.n, -1, 1), c.dtype);
  const Stream stream = current_stream(default_device()), host{Device::cpu()};
  for (const bool center : {true, false}) {
    if (c.n < 31 && center) continue;  // of one element nothing but rounding errors are left
    const std::string what = c.name() + (center ? " layer" : " rms");
    const auto run = [&](DType t, DType p, Device device, Stream on) {
      const DType stat = compute_dtype(t);
      const auto place = [&](const std::vector<double>& v, const Shape& s, DType d) {
        return make(v, s, d, device.is_cpu() || s.size() == 1 ? Layout::contiguous : c.layout,
                    device);
      };
      const Tensor tx = place(x, shape, t), tw = place(w, {c.n}, p), tb = place(b, {c.n}, t);
      const Tensor y = empty(shape, t, device), mean = empty({c.rows}, stat, device);
      const Tensor rstd = empty({c.rows}, stat, device), dx = empty(shape, t, device);
      kernels::norm(tx.view(), tw.view(), center ? tb.view() : ConstView{}, 1e-5, center,
                    y.mutable_view(), mean.mutable_view(), rstd.mutable_view(), on);
      const Tensor dw = place(before, {c.n}, p), db = empty({c.n}, stat, device);
      kernels::NormGrads grads;
      grads.dx = dx.mutable_view();
      grads.dweight = dw.mutable_view();
      grads.dweight_beta = 1;
      if (center) grads.dbias = db.mutable_view();
      const Tensor tdy = place(dy, shape, t);
      kernels::norm_backward(tdy.view(), tx.view(), tw.view(), mean.view(), rstd.view(), center,
                             grads, on);
      // The parameters' gradients alone.
      const Tensor alone = empty({c.n}, stat, device);
      kernels::NormGrads one;
      one.dweight = alone.mutable_view();
      kernels::norm_backward(tdy.view(), tx.view(), tw.view(), mean.view(), rstd.view(), center,
                             one, on);
      std::vector<std::vector<double>> all;
      for (const Tensor& r : {y, rstd, dx, dw, alone}) all.push_back(values_of(r));
      if (center) all.push_back(values_of(db));
      return all;
    };
    const auto want = run(f64, f64, Device::cpu(), host);
    const auto got = run(c.dtype, compute, default_device(), stream);
    const char* const names[] = {"y ", "rstd ", "dx ", "dweight ", "dweight alone ", "dbias "};
    const double steep = 4 * std::max(1.0, largest(want[1]));  // x may be small, and rstd large
    for (std::size_t k = 0; k < want.size(); ++k) {
      Case summed = c;  // gradients of weight and bias are sums over the rows
      if (k >= 3) summed.n = std::max(c.n, c.rows);
      expect_close(names[k] + what, got[k], want[k], bound_of(want[k], summed, steep));
    }
  }
}

TEST_CASE("norms and their gradients on a device agree with f64 on the CPU for every row length",
          "[once]") {
  for_each_case(check_norms);
}

TEST_CASE("norms of more rows than there are teams agree with f64 on the CPU") {
  check_norms({f32, Layout::contiguous, 300, 40});
  check_norms({f16, Layout::contiguous, 2500, 8});
}

// Rows too long for registers, and so many that their columns are summed in chunks.
TEST_CASE("norms of many long rows on a device agree with f64 on the CPU") {
  check_norms({f32, Layout::contiguous, 70, 4200});
}

TEST_CASE("cross-entropy and its gradient on a device agree with f64 on the CPU") {
  struct Kind {
    const char* name;
    double smoothing;
    bool weights, log_input;
    double z = 0;           // and then rows have weights
    bool in_parts = false;  // columns come in two parts
  };
  for_each_case([](const Case& c) {
    for (const Kind& kind :
         {Kind{"plain", 0, false, false}, Kind{"smoothed", 0.1, true, false},
          Kind{"nll", 0.1, true, true}, Kind{"all options", 0.1, true, false, 0.05},
          Kind{"all options in parts", 0.1, true, false, 0.05, true},
          Kind{"in parts", 0, false, false, 0, true}}) {
      const std::string what = c.name() + " " + kind.name;
      Rng rng(seed_of(what));
      const Shape shape{c.rows, c.n};
      const auto x = rounded(rng.uniforms(c.rows * c.n, -6, 0), c.dtype);
      std::vector<double> target(static_cast<std::size_t>(c.rows));
      for (double& t : target) t = static_cast<double>(rng.below(std::min<std::int64_t>(c.n, 200)));
      if (c.rows > 2) target[1] = 255;  // ignored
      auto w = rounded(rng.uniforms(c.n, 0, 2), f32);
      w[0] = 0;
      auto u = rounded(rng.uniforms(c.rows, 0.5, 2), f16);
      if (c.rows > 2) u[2] = 0;
      const auto run = [&](DType t, DType index, Layout layout, Device device) {
        const DType compute = compute_dtype(t);
        const Stream stream = device.is_cpu() ? Stream{device} : current_stream(device);
        kernels::CrossEntropyArgs args;
        args.ignore_index = 255;
        args.label_smoothing = kind.smoothing;
        args.log_input = kind.log_input;
        const Tensor weights = make(w, {c.n}, f32, Layout::contiguous, device);
        if (kind.weights) args.class_weights = weights.view();
        const Tensor tx = make(x, shape, t, layout, device);
        const Tensor tt = make(target, {c.rows}, index, Layout::contiguous, device);
        const Tensor loss = empty({}, compute, device), weight = empty({}, compute, device);
        const Tensor stats = empty({c.rows, 2}, compute, device);
        const Tensor dx = empty(shape, t, device), more = full(shape, 0.5, compute, device);
        const Tensor dloss = full({}, 0.25, compute, device);
        const Tensor row_weights = make(u, {c.rows}, compute, Layout::contiguous, device);
        args.z_loss = kind.z;
        if (kind.z != 0) args.row_weights = row_weights.view();
        const std::int64_t cut = kind.in_parts && c.n > 1 ? (c.n + 2) / 3 : c.n;
        const auto each_part = [&](const auto& fn) {
          for (const std::int64_t first : {std::int64_t{0}, cut}) {
            if (first == c.n) return;
            args.first_class = first;
            const std::int64_t end = first == 0 ? cut : c.n;
            fn([=](const Tensor& of) { return of.slice(1, first, end); });
          }
        };
        args.classes = c.n;
        if (kind.in_parts) {
          const Tensor states = empty({c.rows, 4}, f64, device);
          each_part([&](const auto& part) {
            kernels::cross_entropy_part(part(tx).view(), tt.view(), args, states.mutable_view(),
                                        stream);
          });
          kernels::cross_entropy_total(states.view(), tt.view(), args, loss.mutable_view(),
                                       weight.mutable_view(), stats.mutable_view(), stream);
        } else {
          kernels::cross_entropy(tx.view(), tt.view(), args, loss.mutable_view(),
                                 weight.mutable_view(), stats.mutable_view(), stream);
        }
        const Tensor place = make(x, shape, compute, Layout::contiguous, device);
        const Tensor narrow = empty(shape, t == f32 ? bf16 : t, device);
        each_part([&](const auto& part) {
          const auto backward = [&](const Tensor& from, const Tensor& to, float beta) {
            kernels::cross_entropy_backward(dloss.view(), part(from).view(), tt.view(),
                                            stats.view(), args, part(to).mutable_view(), beta,
                                            nullptr, stream);
          };
          backward(tx, dx, 0);
          backward(tx, more, 1);
          backward(tx, narrow, 0);
          backward(place, place, 0);
        });
        std::vector<std::vector<double>> all;
        for (const Tensor& r : {loss, weight, dx, more, place, narrow}) all.push_back(values_of(r));
        return all;
      };
      const DType index = c.n % 3 == 0 ? u8 : c.n % 3 == 1 ? i64 : i32;
      const auto want = run(f64, i64, Layout::contiguous, Device::cpu());
      const auto got = run(c.dtype, index, c.layout, default_device());
      const double size = 16.0 * static_cast<double>(c.rows);
      expect_close("loss " + what, got[0], want[0], bound_of(want[0], c, size));
      expect_close("weight " + what, got[1], want[1], bound_of(want[1], c, size));
      expect_close("dx " + what, got[2], want[2], bound_of(want[2], c, 1));
      expect_close("dx added " + what, got[3], want[3], bound_of(want[3], c, 1));
      expect_close("dx in the place of x " + what, got[4], want[4], bound_of(want[4], c, 1));
      auto rough = bound_of(want[5], c, 1);
      if (c.dtype == f32)
        for (std::size_t i = 0; i < rough.size(); ++i)
          rough[i] += epsilon_of(bf16) * std::abs(want[5][i]);
      expect_close("dx in 16 bits " + what, got[5], want[5], rough);
    }
  });
}

TEST_CASE("cross-entropy over more rows than blocks, and over none") {
  const std::int64_t rows = 5000, n = 3;
  Rng rng(8);
  const auto x = rounded(rng.uniforms(rows * n, -2, 2), f32);
  std::vector<double> target(static_cast<std::size_t>(rows));
  for (double& t : target) t = static_cast<double>(rng.below(n));
  const auto loss_on = [&](DType t, Device device) {
    const Loss loss = cross_entropy(make(x, {rows, n}, t, Layout::contiguous, device),
                                    make(target, {rows}, i64, Layout::contiguous, device));
    CHECK(loss.weight.item() == static_cast<double>(rows));
    return loss.sum.item();
  };
  CHECK(loss_on(f32, default_device()) == Approx(loss_on(f64, Device::cpu())).epsilon(1e-6));
  const Loss none = cross_entropy(empty({0, 4}), empty({0}, i64));
  CHECK(none.sum.item() == 0);
  CHECK(none.weight.item() == 0);
}

TEST_CASE("a row of infinities or with a NaN stays where it is") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  for (const std::int64_t n : {5, 1024, 1200}) {
    std::vector<double> x(static_cast<std::size_t>(3 * n), 1.0);
    std::fill(x.begin(), x.begin() + n, -kInf);
    x[static_cast<std::size_t>(2 * n - 2)] = std::nan("");
    for (const bool log : {false, true}) {
      const Tensor t = make(x, {3, n}, dtype);
      const auto y = values_of(log ? log_softmax(t) : softmax(t));
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double even = log ? -std::log(static_cast<double>(n)) : 1 / static_cast<double>(n);
        if (i < static_cast<std::size_t>(2 * n)) {
          if (!std::isnan(y[i])) FAIL("row " << i / static_cast<std::size_t>(n) << ": " << y[i]);
        } else if (std::abs(y[i] - even) > 1e-5 + epsilon_of(dtype) * std::abs(even)) {
          FAIL("row 2: " << y[i]);
        }
      }
    }
  }
}

TEST_CASE("softmax and cross-entropy of numbers near the ends of a dtype are f64's") {
  struct Ends {
    DType dtype;
    double most, step;  // the largest number, and from there to the next below
  };
  const Ends ends = GENERATE(Ends{f16, 65504, 32}, Ends{bf16, 0x1.fep127, 0x1p120},
                             Ends{f32, 0x1.fffffep127, 0x1p104});
  // The largest number counts alone or in equal parts: no element is within reach of it, and the
  // distance to the smallest overflows in bf16 and f32.
  const std::vector<double> x = {
      ends.most, ends.most - ends.step, 0, -ends.most, ends.most, -ends.most, 2, 1, 0, -kInf};
  const Tensor t = make(x, {2, 5}, ends.dtype).set_requires_grad();
  const auto y = values_of(softmax(t));
  CHECK(y[0] == 0.5);
  CHECK(y[1] + y[2] + y[3] == 0);
  CHECK(y[4] == 0.5);
  const double sum = std::exp(-1.0) + std::exp(-2.0) + 1;
  for (int k = 0; k < 5; ++k) {
    const double want = k == 0 || k == 4 ? 0 : std::exp(1.0 - k) / sum;
    CHECK(std::abs(y[static_cast<std::size_t>(5 + k)] - want) <= 4 * epsilon_of(ends.dtype) * want);
  }
  const Loss loss = cross_entropy(t, make({4, 1}, {2}, i64));
  CHECK(loss.sum.item() == Approx(std::log(2.0) + std::log(sum)).epsilon(1e-6));
  loss.sum.backward();
  const auto dx = values_of(t.grad());
  CHECK(dx[0] == 0.5);
  CHECK(dx[4] == -0.5);
  CHECK(dx[9] == 0);
}

TEST_CASE("a target outside the classes: the loss is NaN and the next wait throws", "[gpu]") {
  if (default_device().is_cpu()) return;  // there it throws at once, before anything is written
  const Tensor x = ones({3, 4}), target = make({1, 9, 2}, {3}, i64);
  const Loss loss = cross_entropy(x, target);
  const std::string what = error_of([&] { synchronize(default_device()); });
  CHECK(what.find("[cross_entropy] target 9") == 0);
  CHECK(std::isnan(loss.sum.item()));
  const Loss parts = linear_cross_entropy(x, ones({4, 4}), target, {}, {.chunk_rows = 1});
  CHECK(error_of([&] {
          synchronize(default_device());
        }).find("[linear_cross_entropy] target 9 at position 1 is not in [0, 4)") == 0);
  CHECK(std::isnan(parts.sum.item()));
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("row operations have the same bits in every order of threads and blocks", "[gpu][once]") {
  const auto run = [] {
    std::vector<double> all;
    for (const std::int64_t n : {100, 700}) {
      Rng rng(4);
      const Tensor x = make(rng.uniforms(300 * n, -1, 1), {300, n}, f32).set_requires_grad();
      const Tensor w = make(rng.uniforms(n, -1, 1), {n}, f32).set_requires_grad();
      std::vector<double> target(300, 3);
      const Loss loss = cross_entropy(layer_norm(x, w), make(target, {300}, i64));
      loss.sum.backward();
      all.push_back(loss.sum.item());
      for (const Tensor& t : {x, w}) {
        const auto more = values_of(t.grad());
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    return all;
  };
  expect_same_in_every_order(run);
}
#endif

}  // namespace
}  // namespace firn::testing
