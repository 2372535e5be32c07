// Reductions over axes. Under autocast sums run in f32 and return f32; extrema keep their operand's
// dtype.
#include "kernels/reduce.h"

#include <algorithm>
#include <limits>

#include "kernels/elementwise.h"
#include "ops/common.h"

namespace firn {

using namespace ops;
using kernels::ReduceOp;

namespace {

/// The shapes and counts of a reduction of x over some axes.
struct Reduction {
  Axes axes;
  Shape kept;   ///< x's shape with size 1 at the reduced axes
  Shape shape;  ///< the result's
  std::int64_t count = 1;
  bool keepdims;

  Reduction(const char* op, const Tensor& x, const Axes& list, bool keep)
      : axes(normalize_axes(op, list, x.rank())), kept(x.shape()), keepdims(keep) {
    for (const std::int64_t a : axes) {
      count *= kept[static_cast<int>(a)];
      kept[static_cast<int>(a)] = 1;
    }
    if (keepdims) shape = kept;
    for (int i = 0; !keepdims && i < x.rank(); ++i)
      if (!axes.contains(i)) shape.push_back(kept[i]);
  }

  /// Gives axes and form as the attributes of `op`.
  void give(const char* op) const {
    if (autograd::wants_attributes()) [[unlikely]]
      autograd::attributes(op, {{"axes", axes}, {"keepdims", keepdims}});
  }
  /// t, of the result's shape and any strides, with the reduced axes back at size 1.
  Tensor restore(const Tensor& t) const {
    Strides strides;
    for (int i = 0, j = 0; i < kept.size(); ++i) {
      const bool gone = axes.contains(i);
      strides.push_back(gone ? 0 : t.strides()[j]);
      if (keepdims || !gone) ++j;
    }
    return t.as_strided(kept, strides);
  }
  /// The same, repeated along the reduced axes to x's shape.
  Tensor spread(const Tensor& t, const Shape& full) const {
    const Tensor r = restore(t);
    return r.as_strided(full, r.strides());
  }
};

Tensor extremum(ReduceOp op, const char* name, const Tensor& x, const Axes& axes, bool keepdims) {
  require_defined(name, x);
  const Reduction r(name, x, axes, keepdims);
  FIRN_CHECK(r.count > 0, name, "check that the tensor is not empty",
             "nothing to compare: {} over axes {} has no elements", describe(x), r.axes);
  Tensor y = empty(r.shape, x.dtype(), x.device());
  kernels::reduce(op, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give(name);
  return record(name, y, {&x}, {Saved::input(0), Saved::output()}, [r](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::extremum_backward(r.restore(b.grad()).view(), b.saved(0).view(),
                               r.restore(b.saved(1)).view(), dx.mutable_view(), beta, b.stream());
  });
}

}  // namespace

Tensor sum(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_defined("sum", x);
  const Reduction r("sum", x, axes, keepdims);
  Tensor y = empty(r.shape, is_floating(x.dtype()) ? x.dtype() : i64, x.device());
  kernels::reduce(ReduceOp::sum, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give("sum");
  return record("sum", y, {&x}, {},
                [r](Backward& b) { b.accumulate(0, r.spread(b.grad(), b.input_shape(0))); });
}

Tensor mean(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating("mean", x);
  const Reduction r("mean", x, axes, keepdims);
  const double scale = 1.0 / static_cast<double>(r.count);  // an empty mean is 0 * inf: NaN
  Tensor y = empty(r.shape, x.dtype(), x.device());
  kernels::reduce(ReduceOp::sum, x.view(), r.restore(y).mutable_view(), scale, 0, stream_of(x));
  r.give("mean");
  return record("mean", y, {&x}, {}, [r, scale](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::axpby(scale, r.spread(b.grad(), dx.shape()).view(), beta, dx.mutable_view(),
                   b.stream());
  });
}

Tensor max(const Tensor& x, const Axes& axes, bool keepdims) {
  return extremum(ReduceOp::max, "max", x, axes, keepdims);
}

Tensor min(const Tensor& x, const Axes& axes, bool keepdims) {
  return extremum(ReduceOp::min, "min", x, axes, keepdims);
}

Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdims) {
  require_defined("argmax", x);
  const int a = normalize_axis("argmax", axis, x.rank());
  const Reduction r("argmax", x, {a}, keepdims);
  FIRN_CHECK(r.count > 0, "argmax", "check that the tensor is not empty",
             "nothing to compare: {} has no elements along axis {}", describe(x), a);
  Tensor y = empty(r.shape, i64, x.device());
  kernels::argmax(x.view(), r.restore(y).mutable_view(), a, stream_of(x));
  r.give("argmax");
  autograd::unrecorded("argmax", y, {&x});
  return y;
}

Tensor var(const Tensor& operand, const Axes& axes, std::int64_t correction, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating("var", x);
  const Reduction r("var", x, axes, keepdims);
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
    kernels::reduce(ReduceOp::sum_squares, distance.view(), r.restore(y).mutable_view(), scale, 0,
                    stream);
  }
  // dx = dy * 2 (x - mean) / (n - correction); over all axes inf * dy, or NaN at the mean, if that
  // divisor is not positive (PyTorch's var_backward).
  const bool degenerate = axes.empty() && r.count <= correction;
  const double slope_scale = 2.0 / (static_cast<double>(r.count) - static_cast<double>(correction));
  const auto backward = [r, degenerate, slope_scale](Backward& b) {
    const Tensor& input = b.saved(0);
    const Tensor slope = empty(input.shape(), b.saved(1).dtype(), input.device());
    kernels::binary(math::BinaryOp::sub, input.view(),
                    broadcast_to(b.saved(1).view(), input.shape()), slope.mutable_view(),
                    math::Args{}, b.stream());
    if (degenerate) {  // 0 * inf is NaN
      kernels::unary(math::UnaryOp::abs, slope.view(), slope.mutable_view(), math::Args{},
                     b.stream());
    }
    kernels::binary(math::BinaryOp::mul, slope.view(), r.spread(b.grad(), input.shape()).view(),
                    slope.mutable_view(), math::Args{}, b.stream());
    const auto [dx, beta] = b.sink(0);
    kernels::axpby(degenerate ? std::numeric_limits<double>::infinity() : slope_scale, slope.view(),
                   beta, dx.mutable_view(), b.stream());
  };
  r.give("var");
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("var", {{"correction", correction}});
  return record("var", y, {&x}, {Saved::input(0), Saved::other(center)}, backward);
}

Tensor norm(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating("norm", x);
  const Reduction r("norm", x, axes, keepdims);
  const Tensor squared = empty(r.shape, compute_dtype(x.dtype()), x.device());
  kernels::reduce(ReduceOp::sum_squares, x.view(), r.restore(squared).mutable_view(), 1, 0,
                  stream_of(x));
  Tensor y = empty(r.shape, x.dtype(), x.device());
  kernels::unary(math::UnaryOp::sqrt, squared.view(), y.mutable_view(), math::Args{}, stream_of(x));
  // dx = x * (dy / y), and 0 if y is 0.
  r.give("norm");
  return record("norm", y, {&x}, {Saved::input(0), Saved::output()}, [r](Backward& b) {
    const Tensor& input = b.saved(0);
    const DType wide = compute_dtype(input.dtype());
    const Tensor length = cast(b.saved(1), wide);
    const Tensor zero = zeros({}, wide, input.device());
    const Tensor factor = where(eq(length, zero), zero, div(cast(b.grad(), wide), length));
    const auto [dx, beta] = b.sink(0);
    kernels::binary_backward(math::BinaryOp::mul, 0, input.view(), input.view(),
                             r.spread(factor, input.shape()).view(), dx.mutable_view(),
                             math::Args{}, beta, b.stream());
  });
}

}  // namespace firn
