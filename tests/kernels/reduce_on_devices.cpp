// Reductions and elementwise kernels on the device under test where CUDA kernels choose between
// several ways: outputs of a warp, of a block and of many, columns in packs and in chunks of rows,
// operands that are repeated, of mixed dtypes, or begin at odd addresses; and the bits in every
// order of threads, blocks and streams.
#include "kernels/reduce.h"

#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using kernels::ReduceOp;

Stream here() { return current_stream(default_device()); }

/// `op` over axis 0 or 1 of a matrix, on the device under test and on the CPU in f64.
void check_reduction(ReduceOp op, const Shape& shape, int axis, DType t, Layout layout, double low,
                     double high) {
  const std::string what = "axis " + std::to_string(axis) + " of " + to_string(shape) + " " +
                           to_string(t) + " " + to_string(layout) + " op " +
                           std::to_string(static_cast<int>(op));
  Rng rng(seed_of(what));
  const auto values = rounded(rng.uniforms(shape.product(), low, high), t);
  Shape kept = shape;
  kept[axis] = 1;
  const Tensor want = empty(kept, f64, Device::cpu());
  const Tensor exact = make(values, shape, f64, Layout::contiguous, Device::cpu());
  kernels::reduce(op, exact.view(), want.mutable_view(), 1, 0, Stream{});
  const Tensor x = make(values, shape, t, layout), y = empty(kept, compute_dtype(t));
  kernels::reduce(op, x.view(), y.mutable_view(), 1, 0, here());
  const auto w = values_of(want);
  if (op == ReduceOp::max || op == ReduceOp::min) return expect_same(what, values_of(y), w);
  std::vector<double> size;
  for (const double v : values) size.push_back(op == ReduceOp::sum ? std::abs(v) : v * v);
  const Tensor sizes = empty(kept, f64, Device::cpu());
  kernels::reduce(ReduceOp::sum, make(size, shape, f64, Layout::contiguous, Device::cpu()).view(),
                  sizes.mutable_view(), 1, 0, Stream{});
  auto bound = values_of(sizes);
  const double terms = static_cast<double>(shape[axis]);
  for (double& b : bound) b *= (4 * std::sqrt(terms) + 2) * epsilon_of(compute_dtype(t));
  expect_close(what, values_of(y), w, bound);
}

TEST_CASE("reductions on a device of every size agree with f64 on the CPU", "[once]") {
  struct Matrix {
    Shape shape;
    int axis;
  };
  for (const Matrix& m : {Matrix{{1, 300001}, 1}, Matrix{{5, 40003}, 1}, Matrix{{1100, 1030}, 1},
                          Matrix{{1030, 33}, 1}, Matrix{{512, 1024}, 0}, Matrix{{3000, 40}, 0},
                          Matrix{{20000, 7}, 0}, Matrix{{64, 512}, 0}}) {
    for (const Layout layout : {Layout::contiguous, Layout::offset}) {
      check_reduction(ReduceOp::sum, m.shape, m.axis, f32, layout, -1, 2);
      check_reduction(ReduceOp::sum, m.shape, m.axis, f16, layout, 0.5, 1);
    }
    check_reduction(ReduceOp::sum_squares, m.shape, m.axis, bf16, Layout::contiguous, -1, 1);
    check_reduction(ReduceOp::max, m.shape, m.axis, f16, Layout::contiguous, -9, 9);
    check_reduction(ReduceOp::sum, m.shape, m.axis, f64, Layout::stepped, -1, 1);
    check_reduction(ReduceOp::min, m.shape, m.axis, i32, Layout::contiguous, -900, 900);
  }
}

TEST_CASE("a sum does not depend on where its operand begins") {
  for (const Shape& shape : {Shape{3, 50000}, Shape{512, 1024}}) {
    for (const int axis : {0, 1}) {
      Rng rng(2);
      const auto values = rng.uniforms(shape.product(), -1, 1);
      const Tensor x = make(values, shape, f32), odd = make(values, shape, f32, Layout::offset);
      expect_same(to_string(shape), values_of(sum(odd, {axis})), values_of(sum(x, {axis})));
    }
  }
}

TEST_CASE("an operand repeated along rows or columns, in every mix of dtypes") {
  for (const Shape& shape : {Shape{33, 64}, Shape{5, 7, 16}, Shape{33, 63}, Shape{70000, 8}}) {
    Rng rng(seed_of(to_string(shape)));
    const auto eighths = [&](std::int64_t n) {  // products and sums are exact in f32
      std::vector<double> v(static_cast<std::size_t>(n));
      for (double& x : v) x = static_cast<double>(rng.below(64) - 32) / 8;
      return v;
    };
    const std::int64_t columns = shape.back();
    const auto a = eighths(shape.product()), b = eighths(columns);
    Shape per_row = shape;
    per_row.back() = 1;
    const auto c = eighths(per_row.product());
    for (const DType left : {f32, f16, bf16, f64}) {
      for (const DType right : {f32, f16}) {
        const DType out = left == f64 ? f64 : right;
        const Tensor x = make(a, shape, left), bias = make(b, {columns}, right);
        const Tensor scale = make(c, per_row, right);
        const Tensor y = full(shape, 0.5, out), z = empty(shape, out);
        kernels::binary_backward(math::BinaryOp::mul, 0, x.view(), x.view(),
                                 broadcast_to(bias.view(), shape), y.mutable_view(), math::Args{},
                                 1, here());
        kernels::binary(math::BinaryOp::add, broadcast_to(scale.view(), shape), x.view(),
                        z.mutable_view(), math::Args{}, here());
        std::vector<double> product(a), total(a);
        for (std::size_t i = 0; i < a.size(); ++i) {
          product[i] = 0.5 + a[i] * b[i % b.size()];
          total[i] = a[i] + c[i / b.size()];
        }
        const std::string what = to_string(shape) + " " + to_string(left) + " " + to_string(right);
        expect_same("product " + what, values_of(y), rounded(product, out));
        expect_same("sum " + what, values_of(z), rounded(total, out));
      }
    }
  }
}

TEST_CASE("a comparison, a choice and a gradient that is added up, of every length") {
  for (const std::int64_t n : {1, 7, 8, 31, 64, 1000, 1025}) {
    Rng rng(static_cast<std::uint64_t>(n));
    const auto a = rounded(rng.uniforms(n, -1, 1), f16), b = rounded(rng.uniforms(n, -1, 1), f16);
    const Tensor ta = make(a, {n}, f16), tb = make(b, {n}, f16);
    const Tensor less = lt(ta, tb);
    std::vector<double> want_less(a), want(a), added(a);
    const Tensor total = full({n}, 3, f32), picked = where(less, ta, tb);
    kernels::axpby(2, ta.view(), 1, total.mutable_view(), here());
    for (std::size_t i = 0; i < a.size(); ++i) {
      want_less[i] = a[i] < b[i];
      want[i] = a[i] < b[i] ? a[i] : b[i];
      added[i] = 3 + 2 * a[i];
    }
    expect_same("lt", values_of(less), want_less);
    expect_same("where", values_of(picked), want);
    expect_same("axpby", values_of(total), rounded(added, f32));
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("reductions have the same bits in every order of threads and blocks", "[gpu][once]") {
  Rng rng(6);
  const Tensor x = make(rng.uniforms(700 * 513, -1, 1), {700, 513}, f32);
  const auto run = [&] {
    std::vector<double> all;
    for (const Tensor& t : {sum(x), sum(x, {0}), sum(x, {1}), norm(x), max(x, {0})}) {
      const auto more = values_of(t);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  expect_same_in_every_order(run);
}

TEST_CASE("two streams may run one kernel at a time", "[gpu]") {
  if (default_device().is_cpu()) return;
  Rng rng(7);
  const auto values = rng.uniforms(100000, -1, 1);
  const Tensor x = make(values, {100000}, f32);
  const double want = sum(x).item();
  synchronize(default_device());
  const LazyStreams lazy;
  const SideStream side(default_device());
  std::vector<Tensor> results;
  for (int i = 0; i < 6; ++i) {
    const StreamScope scope(i % 2 == 0 ? Stream(side) : here());
    results.push_back(sum(x));
  }
  synchronize(default_device());
  for (const Tensor& t : results) CHECK(t.item() == want);
}
#endif

}  // namespace
}  // namespace firn::testing
