// Scans along an axis. Under autocast sums, products and logarithms of sums run in f32 and return
// f32; extrema keep their operand's dtype.
#include "kernels/scan.h"

#include "firn/ops/index.h"
#include "firn/ops/rearrange.h"
#include "firn/ops/reduce.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/index.h"
#include "ops/gradient/again.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;
using kernels::ScanOp;

namespace {

/// A scan of x by values, recorded as `op`.
template <class Fn>
Tensor scanned(const char* op, ScanOp kind, const Tensor& x, std::int64_t axis,
               std::initializer_list<Saved> saved, Fn backward) {
  const int a = line_axis(op, x, axis);
  Tensor y = empty(x.shape(), is_floating(x.dtype()) ? x.dtype() : i64, x.device());
  kernels::scan(kind, lines_of(x).view(), lines_of(y).mutable_view(), a, false, 0, stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", a}});
  return record(op, y, {&x}, saved, backward);
}

/// The gradient's sink as a view with at least one axis.
struct LineSink {
  Tensor dx;
  float beta;
  explicit LineSink(Backward& b) {
    const auto [grad, factor] = b.sink(0);
    dx = lines_of(grad);
    beta = factor;
  }
};

/// y[i] = b[i] + a[i] y[i + 1] along an axis of n > 0 elements. `factors(to)` writes a[0 .. n - 1).
template <class Fn>
Tensor suffix_sums(const Tensor& b, DType wide, int axis, Stream stream, Fn&& factors) {
  const std::int64_t n = b.size(axis);
  const Tensor a = empty(b.shape(), wide, b.device()), y = empty(b.shape(), wide, b.device());
  kernels::fill(part(a, axis, n - 1, 1).mutable_view(), 0, stream);
  if (n > 1) factors(part(a, axis, 0, n - 1));
  kernels::scan_linear(a.view(), b.view(), y.mutable_view(), axis, stream);
  return y;
}

Sorted extremum(const char* op, bool largest, const Tensor& x, std::int64_t axis) {
  const int a = line_axis(op, x, axis);
  Tensor values = empty(x.shape(), x.dtype(), x.device());
  const Tensor indices = empty(x.shape(), i64, x.device());
  kernels::scan_extremum(largest, lines_of(x).view(), lines_of(values).mutable_view(),
                         lines_of(indices).mutable_view(), a, stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", a}});
  const auto backward = [op, a](Backward& b) {
    const LineSink to(b);
    kernels::gather_backward(op, lines_of(b.grad()).view(), lines_of(b.saved(0)).view(),
                             to.dx.mutable_view(), a, to.beta, b.stream());
  };
  values =
      record(op, values, {&x}, {Saved::other(indices)}, with_again(backward, [a](GraphBackward& b) {
               if (b.grad().rank() == 0) return b.add(0, b.grad());
               b.add(0, scatter_add(zeros_like(b.grad()), a, b.saved(0), b.grad()));
             }));
  return {values, indices};
}

}  // namespace

Tensor ops::exclusive_products(const Tensor& x, int axis, bool after, Stream stream) {
  const std::int64_t n = x.size(axis);
  Tensor y = empty(x.shape(), compute_dtype(x.dtype()), x.device());
  kernels::fill(part(y, axis, after ? n - 1 : 0, 1).mutable_view(), 1, stream);
  if (n > 1)
    kernels::scan(ScanOp::prod, part(x, axis, after ? 1 : 0, n - 1).view(),
                  part(y, axis, after ? 0 : 1, n - 1).mutable_view(), axis, after, 0, stream);
  return y;
}

Tensor cumsum(const Tensor& operand, std::int64_t axis) {
  const Autocasted in(Policy::fp32, operand);
  const int a = line_axis("cumsum", in[0], axis);
  const auto backward = [a](Backward& b) {
    const LineSink to(b);
    kernels::scan(ScanOp::sum, lines_of(b.grad()).view(), to.dx.mutable_view(), a, true, to.beta,
                  b.stream());
  };
  return scanned("cumsum", ScanOp::sum, in[0], axis, {},
                 with_again(backward, [a](GraphBackward& b) {
                   if (b.grad().rank() == 0) return b.add(0, b.grad());
                   b.add(0, flip(cumsum(flip(b.grad(), {a}), a), {a}));
                 }));
}

Tensor cumprod(const Tensor& operand, std::int64_t axis) {
  const Autocasted in(Policy::fp32, operand);
  // dx[i] = (product of x before i) * s[i], with s[i] = dy[i] + x[i + 1] s[i + 1].
  const int a = line_axis("cumprod", in[0], axis);
  return scanned("cumprod", ScanOp::prod, in[0], axis, {Saved::input(0)}, [a](Backward& b) {
    const Tensor x = lines_of(b.saved(0)), dy = lines_of(b.grad());
    if (x.numel() == 0) return b.accumulate(0, b.grad());
    const auto factors = [&](const Tensor& to) {
      kernels::copy(part(x, a, 1, x.size(a) - 1).view(), to.mutable_view(), b.stream());
    };
    const Tensor sums = suffix_sums(dy, compute_dtype(x.dtype()), a, b.stream(), factors);
    const Tensor before = exclusive_products(x, a, false, b.stream());
    const LineSink to(b);
    kernels::binary_backward(math::BinaryOp::mul, 0, sums.view(), x.view(), before.view(),
                             to.dx.mutable_view(), math::Args{}, to.beta, b.stream());
  });
}

Tensor logcumsumexp(const Tensor& operand, std::int64_t axis) {
  const Autocasted in(Policy::fp32, operand);
  require_floating("logcumsumexp", in[0]);
  // dx[i] = e^(x[i] - y[i]) s[i], with s[i] = dy[i] + e^(y[i] - y[i + 1]) s[i + 1]. y ascends and
  // is no less than x, so neither factor is above 1.
  const int a = line_axis("logcumsumexp", in[0], axis);
  return scanned(
      "logcumsumexp", ScanOp::logsumexp, in[0], axis, {Saved::input(0)}, [a](Backward& b) {
        const Tensor x = lines_of(b.saved(0)), dy = lines_of(b.grad());
        if (x.numel() == 0) return b.accumulate(0, b.grad());
        const DType wide = compute_dtype(x.dtype());
        Tensor y = empty(x.shape(), wide, x.device());  // again, not rounded to 16 bits
        kernels::scan(ScanOp::logsumexp, x.view(), y.mutable_view(), a, false, 0, b.stream());
        y = finite_below(y);
        const auto factors = [&](const Tensor& to) {
          const std::int64_t n = x.size(a);
          // From one infinite y to the next the factor is 1, and from a finite one to it 0.
          const double most = max_of(wide);
          const Tensor finite = clamp(y, -most, most);
          kernels::binary(math::BinaryOp::sub, part(finite, a, 0, n - 1).view(),
                          part(finite, a, 1, n - 1).view(), to.mutable_view(), math::Args{},
                          b.stream());
          kernels::unary(math::UnaryOp::exp, to.view(), to.mutable_view(), math::Args{},
                         b.stream());
        };
        const Tensor sums = suffix_sums(dy, wide, a, b.stream(), factors);
        const Tensor share = exp(sub(cast(x, wide), y));
        const LineSink to(b);
        kernels::binary_backward(math::BinaryOp::mul, 0, sums.view(), x.view(), share.view(),
                                 to.dx.mutable_view(), math::Args{}, to.beta, b.stream());
      });
}

Sorted cummax(const Tensor& x, std::int64_t axis) { return extremum("cummax", true, x, axis); }
Sorted cummin(const Tensor& x, std::int64_t axis) { return extremum("cummin", false, x, axis); }

}  // namespace firn
