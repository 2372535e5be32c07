// Parts of views, and the gradient of views that show a part of their input.
#pragma once

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace firn::ops {

/// `v` with its first element `offset` elements further on.
template <class V>
V advanced(V v, std::int64_t offset) {
  if (v.data)
    v.data = const_cast<char*>(static_cast<const char*>(v.data)) +
             offset * static_cast<std::int64_t>(size_of(v.dtype));
  return v;
}
/// `count` entries of an axis, from `first` on, `step` apart.
template <class V>
V part(V v, int axis, std::int64_t first, std::int64_t count, std::int64_t step = 1) {
  v = advanced(v, first * v.strides[axis]);
  v.shape[axis] = count;
  v.strides[axis] *= step;
  return v;
}

/// Zeroes the whole buffer of input 0 unless it holds contributions, then adds to the part that the
/// output shows. `part` returns the view of the buffer that corresponds to the output.
template <class Part>
void accumulate_part(Backward& b, Part&& part) {
  const auto [grad, beta] = b.sink(0);
  if (beta == 0) kernels::fill(grad.mutable_view(), 0.0, b.stream());
  const Tensor target = part(grad);
  kernels::axpby(1.0, b.grad().view(), 1.0, target.mutable_view(), b.stream());
}

}  // namespace firn::ops
