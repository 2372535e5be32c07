#include "optim/rules/algebra.h"

#include <algorithm>

#include "firn/runtime/stream.h"
#include "kernels/copy.h"
#include "kernels/gemm.h"

namespace firn::optim::algebra {
namespace {

Stream stream_of(const Tensor& t) { return current_stream(t.device()); }

Tensor new_like(const Tensor& t, const Shape& shape) { return empty(shape, t.dtype(), t.device()); }

/// Broadcasts `t` to the shape of a result.
ConstView spread(const Tensor& t, const Shape& shape) {
  Strides strides = Strides::filled(shape.size(), 0);
  for (int i = 1; i <= shape.size(); ++i) {
    const bool own = i <= t.rank() && t.shape()[-i] != 1;
    if (own) strides[-i] = t.strides()[-i];
  }
  return t.as_strided(shape, strides).view();
}

Tensor reduce(kernels::ReduceOp op, const Tensor& x, const Shape& shape, double scale) {
  const Tensor out = new_like(x, shape);
  kernels::reduce(op, x.view(), out.mutable_view(), scale, 0, stream_of(x));
  return out;
}

}  // namespace

void binary(BinaryOp f, const Tensor& a, const Tensor& b, const Tensor& out) {
  kernels::binary(f, spread(a, out.shape()), spread(b, out.shape()), out.mutable_view(),
                  math::Args{}, stream_of(out));
}

Tensor binary(BinaryOp f, const Tensor& a, const Tensor& b) {
  Shape shape = a.rank() >= b.rank() ? a.shape() : b.shape();
  for (const Tensor* t : {&a, &b})
    for (int i = 1; i <= t->rank(); ++i) shape[-i] = std::max(shape[-i], t->shape()[-i]);
  const Tensor out = new_like(a, shape);
  binary(f, a, b, out);
  return out;
}

void unary(UnaryOp f, const Tensor& x) {
  kernels::unary(f, x.view(), x.mutable_view(), math::Args{}, stream_of(x));
}

void axpby(double alpha, const Tensor& x, double beta, const Tensor& y) {
  kernels::axpby(alpha, spread(x, y.shape()), beta, y.mutable_view(), stream_of(y));
}

void copy(const Tensor& from, const Tensor& to) {
  kernels::copy(from.view(), to.mutable_view(), stream_of(to));
}

Tensor number(double value, const Tensor& like) {
  const Tensor out = new_like(like, {});
  kernels::fill(out.mutable_view(), value, stream_of(like));
  return out;
}

Tensor sum(const Tensor& x, const Shape& shape, double scale) {
  return reduce(kernels::ReduceOp::sum, x, shape, scale);
}
Tensor sum_of_squares(const Tensor& x, const Shape& shape, double scale) {
  return reduce(kernels::ReduceOp::sum_squares, x, shape, scale);
}

Tensor line(const Tensor& x) { return x.as_strided({x.numel()}, {1}); }
Tensor matrix(const Tensor& x, std::int64_t rows, std::int64_t cols) {
  return x.as_strided({rows, cols}, {cols, 1});
}

void product(const Tensor& a, const Tensor& b, double alpha, double beta, const Tensor& out) {
  kernels::gemm(a.view(), b.view(), out.mutable_view(),
                kernels::GemmArgs{.alpha = alpha, .beta = beta, .bias = {}}, stream_of(out));
}

Tensor transposed(const Tensor& m) {
  return m.as_strided({m.size(1), m.size(0)}, {m.strides()[1], m.strides()[0]});
}

}  // namespace firn::optim::algebra
