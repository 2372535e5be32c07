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

/// The variance, or its square root, recorded as `op`.
Tensor spread_of(const char* op, bool root, const Tensor& operand, const Axes& axes,
                 std::int64_t correction, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating(op, x);
  const Reduction r(op, x, axes, keepdims);
  const DType wide = compute_dtype(x.dtype());
  const Stream stream = stream_of(x);
  // Sum squared distances from the mean, since a single pass over x and x^2 would cancel. The mean
  // is corrected by the mean distance, so that equal values have variance 0.
  const double part = 1.0 / static_cast<double>(r.count);
  // With count <= correction the divisor is 0 and the result inf or NaN.
  const double scale =
      1.0 / std::max(0.0, static_cast<double>(r.count) - static_cast<double>(correction));
  const Tensor center = empty(r.kept, wide, x.device());
  const Tensor shift = empty(r.kept, wide, x.device());
  Tensor y = empty(r.shape, x.dtype(), x.device());
  const Tensor variance = root ? empty(r.shape, wide, x.device()) : y;
  {
    const Tensor distance = empty(x.shape(), wide, x.device());
    const auto measure = [&] {
      kernels::binary(math::BinaryOp::sub, x.view(), broadcast_to(center.view(), x.shape()),
                      distance.mutable_view(), math::Args{}, stream);
    };
    kernels::reduce(ReduceOp::sum, x.view(), center.mutable_view(), part, 0, stream);
    measure();
    kernels::reduce(ReduceOp::sum, distance.view(), shift.mutable_view(), part, 0, stream);
    kernels::axpby(1, shift.view(), 1, center.mutable_view(), stream);
    measure();
    kernels::reduce(ReduceOp::sum_squares, distance.view(), r.restore(variance).mutable_view(),
                    scale, 0, stream);
  }
  if (root)
    kernels::unary(math::UnaryOp::sqrt, variance.view(), y.mutable_view(), math::Args{}, stream);
  // dx = dy * 2 (x - mean) / (n - correction); over all axes inf * dy, or NaN at the mean, if that
  // divisor is not positive (PyTorch's var_backward).
  const bool degenerate = axes.empty() && r.count <= correction;
  const double slope_scale = 2.0 / (static_cast<double>(r.count) - static_cast<double>(correction));
  const auto first = [r, root, degenerate, slope_scale](Backward& b) {
    const Tensor& input = b.saved(0);
    const Tensor slope = empty(input.shape(), b.saved(1).dtype(), input.device());
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
    const Tensor x_again = b.input(0, 0);
    Tensor dy = b.grad();
    if (root) {
      const Tensor none = eq(b.saved(2), 0.0), y_again = where(none, 1.0, b.output(2));
      dy = where(none, 0.0, div(dy, mul(y_again, 2.0)));
    }
    const Tensor distance = sub(x_again, mean(x_again, r.axes, true));
    b.add(0, mul(mul(distance, slope_scale), r.spread_in_graph(dy, x_again.shape())));
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
