// Helpers of in-place operations. A recorded one points the handle at a new tensor on the same
// storage, so that the new node is separate from the previous one.
#pragma once

#include "kernels/copy.h"
#include "ops/common.h"
#include "tensor/overlap.h"

namespace firn::ops {

/// Returns an unrecorded copy of the present values, for reads that must not see later writes.
inline Tensor values_now(const Tensor& x) {
  Tensor copy = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.view(), copy.mutable_view(), stream_of(x));
  return copy;
}

/// Returns `operand`, or a copy of it if writing `x` element by element would overwrite elements
/// yet to be read. `operand` broadcasts to x's shape.
inline Tensor readable_beside(const Tensor& x, const Tensor& operand) {
  const bool moves = disturbs(x.view(), broadcast_to(operand.view(), x.shape()));
  return moves ? values_now(operand) : operand;
}

}  // namespace firn::ops
