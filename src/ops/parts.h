// The gradient of views that show a part of their input.
#pragma once

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace firn::ops {

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
