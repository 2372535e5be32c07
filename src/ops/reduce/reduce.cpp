// Reductions over axes. Under autocast sums run in f32 and return f32; extrema keep their operand's
// dtype.
#include "firn/ops/reduce.h"

#include "firn/ops/elementwise.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/gradient/again.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;
using kernels::ReduceOp;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor extremum(ReduceOp op, const char* name, const Tensor& x, const Axes& axes, bool keepdims) {
  require_computed(name, x);
  const Reduction r(name, x, axes, keepdims);
  r.require_elements(name, x);
  Tensor y = empty(r.shape, x.dtype(), x.device());
  kernels::reduce(op, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give(name);
  const auto backward = [r](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::extremum_backward(r.restore(b.grad()).view(), b.saved(0).view(),
                               r.restore(b.saved(1)).view(), dx.mutable_view(), beta, b.stream());
  };
  return record(name, y, {&x}, {Saved::input(0), Saved::output()},
                with_again(backward, [r](GraphBackward& b) {
                  const Tensor& input = b.saved(0);
                  const Tensor ties =
                      logical_or(eq(input, r.spread(b.saved(1), input.shape())), isnan(input));
                  const Tensor count = cast(sum(ties, r.axes, true), b.grad().dtype());
                  b.add(0, where(ties, div(reshape(b.grad(), r.kept), count), 0.0));
                }));
}

template <class Kernel>
Tensor position(const char* op, Kernel kernel, const Tensor& x, std::int64_t axis, bool keepdims) {
  require_computed(op, x);
  const int a = normalize_axis(op, axis, x.rank());
  const Reduction r(op, x, {a}, keepdims);
  FIRN_CHECK(r.count > 0, op, "check that the tensor is not empty",
             "nothing to compare: {} has no elements along axis {}", describe(x), a);
  Tensor y = empty(r.shape, i64, x.device());
  kernel(x.view(), r.restore(y).mutable_view(), a);
  r.give(op);
  autograd::unrecorded(op, y, {&x});
  return y;
}

Tensor truth(ReduceOp op, const char* name, const Tensor& x, const Axes& axes, bool keepdims) {
  require_computed(name, x);
  const Reduction r(name, x, axes, keepdims);
  Tensor y = empty(r.shape, x.dtype() == u8 ? u8 : boolean, x.device());
  kernels::reduce(op, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give(name);
  autograd::unrecorded(name, y, {&x});
  return y;
}

}  // namespace

Tensor sum(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_computed("sum", x);
  const Reduction r("sum", x, axes, keepdims);
  Tensor y = empty(r.shape, is_floating(x.dtype()) ? x.dtype() : i64, x.device());
  kernels::reduce(ReduceOp::sum, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give("sum");
  return record(
      "sum", y, {&x}, {},
      with_again(
          [r](Backward& b) { b.accumulate(0, r.spread(b.grad(), b.input_shape(0))); },
          [r](GraphBackward& b) { b.add(0, r.spread_in_graph(b.grad(), b.input_shape(0))); }));
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
  const auto backward = [r, scale](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::axpby(scale, r.spread(b.grad(), dx.shape()).view(), beta, dx.mutable_view(),
                   b.stream());
  };
  return record("mean", y, {&x}, {}, with_again(backward, [r, scale](GraphBackward& b) {
                  b.add(0, r.spread_in_graph(mul(b.grad(), scale), b.input_shape(0)));
                }));
}

Tensor max(const Tensor& x, const Axes& axes, bool keepdims) {
  return extremum(ReduceOp::max, "max", x, axes, keepdims);
}

Tensor min(const Tensor& x, const Axes& axes, bool keepdims) {
  return extremum(ReduceOp::min, "min", x, axes, keepdims);
}

Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdims) {
  const auto find = [&](const ConstView& from, const View& out, int a) {
    kernels::argmax(from, out, a, stream_of(x));
  };
  return position("argmax", find, x, axis, keepdims);
}
Tensor argmin(const Tensor& x, std::int64_t axis, bool keepdims) {
  const auto find = [&](const ConstView& from, const View& out, int a) {
    kernels::argmin(from, out, a, stream_of(x));
  };
  return position("argmin", find, x, axis, keepdims);
}

namespace {

/// Returns x at the position that `find`, argmax() or argmin(), finds.
Sorted with_indices(const char* op, Tensor (*find)(const Tensor&, std::int64_t, bool),
                    const Tensor& x, std::int64_t axis, bool keepdims) {
  const int a = line_axis(op, x, axis);
  const Tensor lines = as_lines(x);
  FIRN_CHECK(lines.size(a) > 0, op, "check that the tensor is not empty",
             "nothing to compare: {} has no elements along axis {}", describe(x), a);
  const Tensor indices = find(lines, a, true);
  const Tensor values = gather(lines, a, indices);
  if (keepdims && x.rank() > 0) return {values, indices};
  return {squeeze(values, a), squeeze(indices, a)};
}

}  // namespace

Sorted max_with_indices(const Tensor& x, std::int64_t axis, bool keepdims) {
  return with_indices("max_with_indices", argmax, x, axis, keepdims);
}
Sorted min_with_indices(const Tensor& x, std::int64_t axis, bool keepdims) {
  return with_indices("min_with_indices", argmin, x, axis, keepdims);
}

Tensor prod(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_computed("prod", x);
  const Reduction r("prod", x, axes, keepdims);
  Tensor y = empty(r.shape, is_floating(x.dtype()) ? x.dtype() : i64, x.device());
  kernels::reduce(ReduceOp::prod, x.view(), r.restore(y).mutable_view(), 1, 0, stream_of(x));
  r.give("prod");
  // dx = dy times the product of the other elements: of those before, and of those after.
  const auto backward = [r](Backward& b) {
    const Tensor& input = b.saved(0);
    if (input.numel() == 0) return b.accumulate(0, zeros_like(input));
    const Tensor lines = r.lines(input);
    const int axis = lines.rank() - 1;
    const Tensor before = exclusive_products(lines, axis, false, b.stream());
    const Tensor after = exclusive_products(lines, axis, true, b.stream());
    kernels::binary(math::BinaryOp::mul, before.view(), after.view(), after.mutable_view(),
                    math::Args{}, b.stream());
    const Tensor others = r.unline(after, input.shape());
    const auto [dx, beta] = b.sink(0);
    kernels::binary_backward(math::BinaryOp::mul, 0, r.spread(b.grad(), input.shape()).view(),
                             input.view(), others.view(), dx.mutable_view(), math::Args{}, beta,
                             b.stream());
  };
  // Halves are multiplied until one is left: no division, so zeros have gradients of any order.
  const auto again = [r](GraphBackward& b) {
    if (r.count == 0) return b.add(0, zeros(b.input_shape(0), b.grad().dtype(), b.grad().device()));
    add_composed(b, {{0, b.input(0, 0)}}, [&](const std::vector<Tensor>& t) {
      Tensor lines = r.lines(t[0]);
      while (lines.size(-1) > 1) {
        const std::int64_t n = lines.size(-1), half = n / 2;
        const Tensor pairs = mul(slice(lines, -1, 0, half), slice(lines, -1, half, 2 * half));
        lines = n % 2 == 0 ? pairs : cat({pairs, slice(lines, -1, n - 1, n)}, -1);
      }
      return reshape(lines, r.shape);
    });
  };
  return record("prod", y, {&x}, {Saved::input(0)}, with_again(backward, again));
}

Tensor any(const Tensor& x, const Axes& axes, bool keepdims) {
  return truth(ReduceOp::any, "any", x, axes, keepdims);
}
Tensor all(const Tensor& x, const Axes& axes, bool keepdims) {
  return truth(ReduceOp::all, "all", x, axes, keepdims);
}

Tensor count_nonzero(const Tensor& x, const Axes& axes) {
  require_defined("count_nonzero", x);
  return sum(ne(x.detach(), 0.0), axes);
}

Tensor logsumexp(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating("logsumexp", x);
  const Reduction r("logsumexp", x, axes, keepdims);
  const DType wide = compute_dtype(x.dtype());
  const Stream stream = stream_of(x);
  Tensor y = empty(r.shape, x.dtype(), x.device());
  if (r.count == 0) {
    kernels::fill(y.mutable_view(), -kInfinity, stream);
  } else {
    const Tensor most = empty(r.kept, wide, x.device());
    const Tensor total = empty(r.kept, wide, x.device());
    kernels::reduce(ReduceOp::max, x.view(), most.mutable_view(), 1, 0, stream);
    {
      // An infinite element is not subtracted: inf - inf is NaN.
      const double limit = max_of(wide);
      kernels::unary(math::UnaryOp::clamp, most.view(), most.mutable_view(),
                     math::Args{-limit, limit}, stream);
      const Tensor terms = empty(x.shape(), wide, x.device());
      kernels::binary(math::BinaryOp::sub, x.view(), broadcast_to(most.view(), x.shape()),
                      terms.mutable_view(), math::Args{}, stream);
      kernels::unary(math::UnaryOp::exp, terms.view(), terms.mutable_view(), math::Args{}, stream);
      kernels::reduce(ReduceOp::sum, terms.view(), total.mutable_view(), 1, 0, stream);
    }
    kernels::unary(math::UnaryOp::log, total.view(), total.mutable_view(), math::Args{}, stream);
    kernels::binary(math::BinaryOp::add, most.view(), total.view(), r.restore(y).mutable_view(),
                    math::Args{}, stream);
  }
  r.give("logsumexp");
  // dx = dy softmax(x). The exponentials of x - y are divided by their sum, since y is rounded.
  const auto share = [r, axes](const Tensor& input, const Tensor& result) {
    const DType compute = compute_dtype(input.dtype());
    const Tensor below = finite_below(cast(result.detach(), compute));
    const Tensor e = exp(sub(cast(input, compute), r.spread(below, input.shape())));
    // The sum is 0 where all elements are -infinity, NaN beside an infinity, else at least 1 / n^2.
    const Tensor total = sum(e, axes, true);
    return div(e, where(gt(total, 0.0), total, 1.0));
  };
  const auto backward = [r, share](Backward& b) {
    const Tensor& input = b.saved(0);
    const Tensor shares = share(input, b.saved(1));
    const auto [dx, beta] = b.sink(0);
    kernels::binary_backward(math::BinaryOp::mul, 0, r.spread(b.grad(), input.shape()).view(),
                             input.view(), shares.view(), dx.mutable_view(), math::Args{}, beta,
                             b.stream());
  };
  return record("logsumexp", y, {&x}, {Saved::input(0), Saved::output()},
                with_again(backward, [r, share](GraphBackward& b) {
                  const Tensor input = b.input(0, 0);
                  const Tensor spread = r.spread_in_graph(b.grad(), input.shape());
                  const Tensor shares = share(input, b.output(1));
                  b.add(0, cast(mul(cast(spread, shares.dtype()), shares), input.dtype()));
                }));
}

Tensor norm(const Tensor& operand, const Axes& axes, bool keepdims) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating("norm", x);
  const Reduction r("norm", x, axes, keepdims);
  const Tensor squared = empty(r.shape, f64, x.device());  // squares of f32 exceed f32
  kernels::reduce(ReduceOp::sum_squares, x.view(), r.restore(squared).mutable_view(), 1, 0,
                  stream_of(x));
  Tensor y = empty(r.shape, x.dtype(), x.device());
  kernels::unary(math::UnaryOp::sqrt, squared.view(), y.mutable_view(), math::Args{}, stream_of(x));
  // dx = x * (dy / y), and 0 if y is 0.
  r.give("norm");
  const auto backward = [r](Backward& b) {
    const Tensor& input = b.saved(0);
    const DType wide = compute_dtype(input.dtype());
    const Tensor length = cast(b.saved(1), wide);
    const Tensor zero = zeros({}, wide, input.device());
    const Tensor factor = where(eq(length, zero), zero, div(cast(b.grad(), wide), length));
    const auto [dx, beta] = b.sink(0);
    kernels::binary_backward(math::BinaryOp::mul, 0, input.view(), input.view(),
                             r.spread(factor, input.shape()).view(), dx.mutable_view(),
                             math::Args{}, beta, b.stream());
  };
  return record("norm", y, {&x}, {Saved::input(0), Saved::output()},
                with_again(backward, [r](GraphBackward& b) {
                  const Tensor none = eq(b.saved(1), 0.0);
                  const Tensor length = where(none, 1.0, b.output(1));
                  const Tensor factor = where(none, 0.0, div(b.grad(), length));
                  b.add(0, mul(b.input(0, 0), r.spread_in_graph(factor, b.input_shape(0))));
                }));
}

}  // namespace firn
