// Variance and standard deviation. Under autocast they run in f32 and return f32.
#include <algorithm>
#include <limits>

#include "firn/ops/reduce.h"
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

/// Stores the variance (f64, the kept shape) and returns the mean (f64), which f32 would round.
///
/// Sums squared distances from a centre in the compute dtype, since a single pass over x and x^2
/// would cancel. The centre is the mean, rounded: the mean distance is added to a first one, so
/// that equal values have variance 0. The addition rounds, and the sum of squares is n rest^2 too
/// large for it (Chan, Golub & LeVeque 1983): much if the deviation is few units in the mean's last
/// place.
Tensor measure_spread(const Tensor& x, const Reduction& r, std::int64_t correction,
                      const Tensor& variance) {
  using math::BinaryOp;
  const DType wide = compute_dtype(x.dtype());
  const Stream stream = stream_of(x);
  const double n = static_cast<double>(r.count), part = 1.0 / n;
  // With count <= correction the divisor is 0 and the result inf or NaN.
  const double divisor = std::max(0.0, n - static_cast<double>(correction));
  const Tensor first = empty(r.kept, wide, x.device()), shift = empty(r.kept, wide, x.device());
  const Tensor center = empty(r.kept, wide, x.device()), mean = empty(r.kept, f64, x.device());
  const Tensor distance = empty(x.shape(), wide, x.device());
  const auto apply = [&](BinaryOp op, const ConstView& a, const ConstView& b, const Tensor& out) {
    kernels::binary(op, a, b, out.mutable_view(), math::Args{}, stream);
  };
  kernels::reduce(ReduceOp::sum, x.view(), first.mutable_view(), part, 0, stream);
  apply(BinaryOp::sub, x.view(), broadcast_to(first.view(), x.shape()), distance);
  kernels::reduce(ReduceOp::sum, distance.view(), shift.mutable_view(), part, 0, stream);
  apply(BinaryOp::add, first.view(), shift.view(), center);
  apply(BinaryOp::sub, x.view(), broadcast_to(center.view(), x.shape()), distance);
  kernels::reduce(ReduceOp::sum_squares, distance.view(), variance.mutable_view(), 1 / divisor, 0,
                  stream);
  apply(BinaryOp::sub, first.view(), center.view(), first);
  const Tensor rest = empty(r.kept, f64, x.device());
  apply(BinaryOp::add, first.view(), shift.view(), rest);
  apply(BinaryOp::add, center.view(), rest.view(), mean);
  if (divisor > 0) {
    kernels::ternary(math::TernaryOp::addcmul, variance.view(), rest.view(), rest.view(),
                     variance.mutable_view(), math::Args{-n / divisor}, stream);
    kernels::unary(math::UnaryOp::relu, variance.view(), variance.mutable_view(), math::Args{},
                   stream);
  }
  return mean;
}

/// The variance, or its square root, recorded as `op`.
Tensor spread_of(const char* op, bool root, const Tensor& operand, const Axes& axes,
                 std::int64_t correction, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating(op, x);
  const Reduction r(op, x, axes, keepdims);
  Tensor y = empty(r.shape, x.dtype(), x.device());
  const Tensor variance = empty(r.kept, f64, x.device());
  const Tensor center = measure_spread(x, r, correction, variance);
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
    // From a constant near the mean first, as f32 would round the mean.
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
VarMean var_mean(const Tensor& x, const Axes& axes, std::int64_t correction, bool keepdims) {
  return {var(x, axes, correction, keepdims), mean(x, axes, keepdims)};
}

}  // namespace firn
