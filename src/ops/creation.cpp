// Creates tensors from numbers.
#include "base/checked.h"
#include "kernels/copy.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  require_holds("full", options.dtype, value);
  Tensor t = empty(shape, options);
  t.storage()->made_by("full");
  kernels::fill(t.mutable_view(), value, stream_of(t));
  ended("full");
  return t;
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
  ended("ones_like");
  return t;
}

Tensor arange(std::int64_t count, const ArangeOptions& options) {
  const auto& [start, step, dtype, device] = options;
  FIRN_CHECK(count >= 0, "arange", "", "count is {}", count);
  if (count > 0) {
    require_holds("arange", dtype, start);
    if (count > 1) require_holds("arange", dtype, start + step);
    require_holds("arange", dtype, start + static_cast<double>(count - 1) * step);
  }
  if (is_stored_only(dtype))
    return cast(arange(count, {start, step, compute_dtype(dtype), device}), dtype);
  Tensor t = empty({count}, dtype, device);
  t.storage()->made_by("arange");
  kernels::arange(t.mutable_view(), start, step, stream_of(t));
  ended("arange");
  return t;
}

Tensor eye(std::int64_t n, const TensorOptions& options) {
  FIRN_CHECK(options.format == MemoryFormat::contiguous, "eye", "leave the memory format out",
             "a matrix has no channels");
  checked_elements("eye", {n, n});
  Tensor t = zeros({n, n}, options);
  const Tensor diagonal = t.as_strided({n}, {n + 1});
  kernels::fill(diagonal.mutable_view(), 1, stream_of(t));
  ended("eye");
  return t;
}

}  // namespace firn
