// What in-place operations share. A recorded one of a tensor in a graph points the handle at a new
// tensor on the same storage, so that the operation's node and the one before it are two.
#pragma once

#include "kernels/copy.h"
#include "ops/common.h"
#include "tensor/overlap.h"

namespace firn::ops {

/// The values as they are now, unrecorded, for what must not see the operation's writes.
inline Tensor values_now(const Tensor& x) {
  Tensor copy = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.view(), copy.mutable_view(), stream_of(x));
  return copy;
}

/// `operand` as an operation may read it element by element while it writes `x`, whose shape it
/// broadcasts to: itself, or a copy if it shares memory with x in another geometry.
inline Tensor readable_beside(const Tensor& x, const Tensor& operand) {
  const bool moves = disturbs(x.view(), broadcast_to(operand.view(), x.shape()));
  return moves ? values_now(operand) : operand;
}

}  // namespace firn::ops
