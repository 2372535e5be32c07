// Tensors out of numbers.
#include "kernels/copy.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  kernels::fill(t.mutable_view(), value, stream_of(t));
  return t;
}

Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

Tensor empty_like(const Tensor& x) {
  return empty(x.shape(), x.dtype(), x.device(), format_of(x.shape(), x.strides()));
}
Tensor zeros_like(const Tensor& x) {
  Tensor t = empty_like(x);
  zero_bytes(t.impl()->data(), t.device(), t.bytes());
  return t;
}
Tensor ones_like(const Tensor& x) {
  Tensor t = empty_like(x);
  kernels::fill(t.mutable_view(), 1, stream_of(t));
  return t;
}

Tensor arange(std::int64_t count, double start, double step, DType dtype, Device device) {
  FIRN_CHECK(count >= 0, "arange", "", "count is {}", count);
  Tensor t = empty({count}, dtype, device);
  kernels::arange(t.mutable_view(), start, step, stream_of(t));
  return t;
}

Tensor eye(std::int64_t n, DType dtype, Device device) {
  Tensor t = zeros({n, n}, dtype, device);
  const Tensor diagonal = t.as_strided({n}, {n + 1});
  kernels::fill(diagonal.mutable_view(), 1, stream_of(t));
  return t;
}

}  // namespace firn
