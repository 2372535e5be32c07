// What in-place ops share. A recorded one gives the tensor a new place in the graph: the handle is
// pointed at a new tensor on the same storage, so that the op's node and the one before it are two.
#pragma once

#include "kernels/copy.h"
#include "ops/common.h"

namespace firn::ops {

/// The same elements, outside the graph so far.
inline Tensor same_elements(const Tensor& x) {
  const TensorImpl& i = *x.impl();
  return Tensor(Ref<TensorImpl>(new TensorImpl(i.storage, i.shape, i.strides, i.offset, i.dtype)));
}

/// The values as they are now, unrecorded: for backward, where the op is about to overwrite them.
inline Tensor values_now(const Tensor& x) {
  Tensor copy = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.view(), copy.mutable_view(), stream_of(x));
  return copy;
}

}  // namespace firn::ops
