// Contract of resizing images x [n, c, h, w] to y [n, c, p, q] (firn/pool.h says which source
// positions). One floating dtype, but that dx may be of the compute dtype; any strides; computed in
// f32 (f64 for f64). Backward gathers.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

void resample(const ConstView& x, bool bilinear, const View& y, Stream stream);
/// dx = beta*dx + the gradient; beta is 0 or 1.
void resample_backward(const ConstView& dy, bool bilinear, const View& dx, float beta,
                       Stream stream);

}  // namespace cpu

FIRN_KERNEL(resample)
FIRN_KERNEL(resample_backward)

}  // namespace firn::kernels
