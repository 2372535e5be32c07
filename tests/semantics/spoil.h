// A finite objective with a gradient that is not.
#pragma once

#include <limits>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

/// `x`, with `gradient` as every element of its gradient in the backward pass: the forward pass
/// stays finite, as where a product overflows on the way back.
inline Tensor spoilt(const Tensor& x, double gradient = std::numeric_limits<double>::infinity()) {
  Tensor y;
  {
    const NoGrad guard;
    y = x.clone();
  }
  return custom("spoilt", {x}, y, {}, [gradient](const CustomBackward& b) {
    return std::vector<Tensor>{full(b.grad.shape(), gradient, b.grad.dtype())};
  });
}

}  // namespace firn::testing
