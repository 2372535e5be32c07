// Health of an optimizer's gradients in a 16-bit type (S10 in docs/semantics.md).
#pragma once

#include <vector>

#include "firn/dtype.h"
#include "firn/optim/optimizer.h"

namespace firn::optim {

/// The gradient of one parameter that the cycle has collected so far, as a 16-bit type would hold
/// it. Shares are of the parameter's elements. "Mean" is the averaged gradient without loss scale.
struct GradientHealth {
  double zeros = 0;          ///< share that is exactly 0
  double flushed = 0;        ///< share that is not 0, but whose mean would round to 0
  double subnormal = 0;      ///< share whose mean would be a subnormal number
  double non_finite = 0;     ///< share that is Inf or NaN
  double largest = 0;        ///< largest finite magnitude of the mean
  double headroom_bits = 0;  ///< log2(largest number of the type / (loss scale * largest))
  bool received = false;     ///< the parameter has received a gradient in the cycle
};

/// Returns the health of each parameter's gradient as `dtype`, f16 or bf16, in the order of
/// Optimizer::parameters(). Call it between backward() and step(). Waits for the device. Throws
/// Error for another dtype.
std::vector<GradientHealth> gradient_health(const Optimizer& optimizer, DType dtype = DType::f16);

}  // namespace firn::optim
