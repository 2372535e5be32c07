// Variance and standard deviation. Under autocast they run in f32 and return f32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "firn/ops/reduce.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/gradient/again.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;
using kernels::ReduceOp;

namespace {

/// The gradient of a square, given that of its root: dy / (2 root), and 0 if the root is 0.
Tensor root_slope(const Tensor& dy, const Tensor& root) {
  const DType wide = compute_dtype(root.dtype());
  const Tensor length = cast(root, wide);
  return where(eq(length, 0.0), 0.0, div(cast(dy, wide), mul(length, 2.0)));
}

/// Kernels that measure the spread of x, for the kept shape and for x's own.
struct Measure {
  const Tensor& x;
  const Reduction& r;
  double divisor;  ///< with count <= correction it is 0, and the result inf or NaN
  Stream stream = stream_of(x);
  double n = static_cast<double>(r.count);

  Tensor kept(DType dtype) const { return empty(r.kept, dtype, x.device()); }
  void apply(math::BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) const {
    kernels::binary(op, a.view(), b.view(), out.mutable_view(), math::Args{}, stream);
  }
  void distances(const Tensor& center, const Tensor& out) const {
    kernels::binary(math::BinaryOp::sub, x.view(), broadcast_to(center.view(), x.shape()),
                    out.mutable_view(), math::Args{}, stream);
  }
  void reduce(ReduceOp op, const Tensor& from, const Tensor& out, double scale) const {
    kernels::reduce(op, from.view(), out.mutable_view(), scale, 0, stream);
  }
  /// Turns the variance about a centre, from which the mean is `rest` away, into the variance: its
  /// sum of squares is n rest^2 too large (Chan, Golub & LeVeque 1983).
  void move_center(const Tensor& rest, const Tensor& variance) const {
    if (divisor <= 0) return;
    kernels::ternary(math::TernaryOp::addcmul, variance.view(), rest.view(), rest.view(),
                     variance.mutable_view(), math::Args{-n / divisor}, stream);
    kernels::unary(math::UnaryOp::relu, variance.view(), variance.mutable_view(), math::Args{},
                   stream);
  }
};

/// Stores the variance (f64, the kept shape) and returns the mean (f64), which f32 would round.
///
/// Sums squared distances from a centre in the compute dtype, since a single pass over x and x^2
/// would cancel. The centre is the mean, rounded: the mean distance is added to a first one, so
/// that equal values have variance 0. The addition rounds, which counts if the deviation is few
/// units in the mean's last place.
Tensor measure_spread(const Measure& m, const Tensor& variance) {
  using math::BinaryOp;
  const DType wide = compute_dtype(m.x.dtype());
  const Tensor first = m.kept(wide), shift = m.kept(wide), center = m.kept(wide);
  const Tensor mean = m.kept(f64), distance = empty(m.x.shape(), wide, m.x.device());
  m.reduce(ReduceOp::sum, m.x, first, 1.0 / m.n);
  m.distances(first, distance);
  m.reduce(ReduceOp::sum, distance, shift, 1.0 / m.n);
  m.apply(BinaryOp::add, first, shift, center);
  m.distances(center, distance);
  m.reduce(ReduceOp::sum_squares, distance, variance, 1 / m.divisor);
  m.apply(BinaryOp::sub, first, center, first);
  const Tensor rest = m.kept(f64);
  m.apply(BinaryOp::add, first, shift, rest);
  m.apply(BinaryOp::add, center, rest, mean);
  m.move_center(rest, variance);
  return mean;
}

/// Measures in f64 for numbers of f32, whose sum and distances may exceed the range of f32. The
/// centre is the first element. If that is k deviations from the mean, k^2 roundings of f64 are
/// lost, at most one for each element.
Tensor measure_wide(const Measure& m, const Tensor& variance) {
  const Tensor first = m.kept(f64), shift = m.kept(f64), mean = m.kept(f64);
  const Tensor distance = empty(m.x.shape(), f64, m.x.device());
  kernels::copy(m.x.as_strided(m.r.kept, m.x.strides()).view(), first.mutable_view(), m.stream);
  m.distances(first, distance);
  m.reduce(ReduceOp::sum, distance, shift, 1.0 / m.n);
  m.reduce(ReduceOp::sum_squares, distance, variance, 1 / m.divisor);
  m.apply(math::BinaryOp::add, first, shift, mean);
  m.move_center(shift, variance);
  return mean;
}

/// True if x has neither an infinity nor a NaN.
bool is_finite(const Measure& m) {
  const auto finite = [&m](ReduceOp op) {
    const Tensor of_all = empty(Shape::filled(m.x.rank(), 1), m.x.dtype(), m.x.device());
    m.reduce(op, m.x, of_all, 1);
    return std::isfinite(of_all.item());
  };
  return finite(ReduceOp::max) && finite(ReduceOp::min);
}

/// On the CPU, measures variances again in f64 where f32 cannot hold the sums. f32 is the faster
/// way, and a device would have to wait for the host to choose. Without an infinity in x such
/// numbers are rare. So a step that overflows takes no memory that its plan has not seen.
void measure_again(const Measure& m, const Tensor& variance, const Tensor& mean) {
  if (!m.x.device().is_cpu() || m.x.dtype() == f64 || runtime::dry_run()) return;
  if (m.divisor <= 0 || m.r.count == 0) return;
  double* const v = variance.data<double>();
  const auto finite = [](double value) { return std::isfinite(value); };
  if (std::all_of(v, v + variance.numel(), finite) || !is_finite(m)) return;
  const Tensor again = m.kept(f64);
  const Tensor mean_again = measure_wide(m, again);
  double* const center = mean.data<double>();
  for (std::int64_t i = 0; i < variance.numel(); ++i) {
    if (finite(v[i])) continue;
    v[i] = again.data<double>()[i];
    center[i] = mean_again.data<double>()[i];
  }
}

/// Returns the variance, or its square root, recorded as `op`.
Tensor spread_of(const char* op, bool root, const Tensor& operand, const Axes& axes,
                 std::int64_t correction, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating(op, x);
  const Reduction r(op, x, axes, keepdims);
  Tensor y = empty(r.shape, x.dtype(), x.device());
  const Tensor variance = empty(r.kept, f64, x.device());
  const double divisor =
      std::max(0.0, static_cast<double>(r.count) - static_cast<double>(correction));
  const Measure measure{x, r, divisor};
  const Tensor center = measure_spread(measure, variance);
  measure_again(measure, variance, center);
  kernels::unary(root ? math::UnaryOp::sqrt : math::UnaryOp::abs, variance.view(),
                 r.restore(y).mutable_view(), math::Args{}, stream_of(x));
  // dx = dy * 2 (x - mean) / (n - correction); over all axes inf * dy, or NaN at the mean, if that
  // divisor is not positive (PyTorch's var_backward).
  const bool degenerate = axes.empty() && r.count <= correction;
  const double slope_scale = 2.0 / (static_cast<double>(r.count) - static_cast<double>(correction));
  const auto first = [r, root, degenerate, slope_scale](Backward& b) {
    const Tensor& input = b.saved(0);
    const Tensor slope = empty(input.shape(), compute_dtype(input.dtype()), input.device());
    kernels::binary(math::BinaryOp::sub, input.view(),
                    broadcast_to(b.saved(1).view(), input.shape()), slope.mutable_view(),
                    math::Args{}, b.stream());
    if (degenerate) {  // 0 * inf is NaN
      kernels::unary(math::UnaryOp::abs, slope.view(), slope.mutable_view(), math::Args{},
                     b.stream());
    }
    const Tensor dy = root ? root_slope(b.grad(), b.saved(2)) : b.grad();
    kernels::binary(math::BinaryOp::mul, slope.view(), r.spread(dy, input.shape()).view(),
                    slope.mutable_view(), math::Args{}, b.stream());
    const auto [dx, beta] = b.sink(0);
    kernels::axpby(degenerate ? std::numeric_limits<double>::infinity() : slope_scale, slope.view(),
                   beta, dx.mutable_view(), b.stream());
  };
  const auto backward = with_again(first, [r, root, slope_scale](GraphBackward& b) {
    const DType dtype = b.grad().dtype(), wide = compute_dtype(dtype);
    const Tensor x_again = cast(b.input(0, 0), wide);
    Tensor dy = cast(b.grad(), wide);
    if (root) {
      const Tensor none = eq(b.saved(2), 0.0);
      const Tensor y_again = where(none, 1.0, cast(b.output(2), wide));
      dy = where(none, 0.0, div(dy, mul(y_again, 2.0)));
    }
    // This subtracts a constant near the mean first, as f32 would round the mean.
    const Tensor near = sub(x_again, cast(b.saved(1), wide));
    const Tensor distance = sub(near, mean(near, r.axes, true));
    b.add(0, cast(mul(mul(distance, slope_scale), r.spread_in_graph(dy, x_again.shape())), dtype));
  });
  r.give(op);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"correction", correction}});
  if (root)
    return record(op, y, {&x}, {Saved::input(0), Saved::other(center), Saved::output()}, backward);
  return record(op, y, {&x}, {Saved::input(0), Saved::other(center)}, backward);
}

}  // namespace

Tensor var(const Tensor& x, const Axes& axes, std::int64_t correction, bool keepdims) {
  return spread_of("var", false, x, axes, correction, keepdims);
}
Tensor std(const Tensor& x, const Axes& axes, std::int64_t correction, bool keepdims) {
  return spread_of("std", true, x, axes, correction, keepdims);
}
VarMean var_mean(const Tensor& x, const Axes& axes, std::int64_t correction, bool keepdims) try {
  return {var(x, axes, correction, keepdims), mean(x, axes, keepdims)};
}
FIRN_AS_OP("var_mean")

}  // namespace firn
