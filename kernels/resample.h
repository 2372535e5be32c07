// Contract of resizing images x [n, c, h, w] to y [n, c, p, q]; firn/ops/pool.h defines the source
// positions. Views share one floating dtype (dx may have the compute dtype), and have any strides.
// Values are computed in f32 (f64 for f64). The backward pass gathers: each element of dx sums over
// the outputs that read it.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/image/resize.h"

namespace firn::kernels {

struct Resampling {
  math::ResizeKind kind = math::ResizeKind::nearest;
  bool align_corners = false;

  /// Returns axis 2 or 3 of images that are resized in this way.
  math::ResizeAxis axis(const Shape& from, const Shape& to, int i) const {
    return {from[i], to[i], kind, align_corners};
  }
};

namespace cpu {

/// y = x resized.
void resample(const ConstView& x, Resampling how, const View& y, Stream stream);
/// dx = beta*dx + the gradient; beta is 0 or 1.
void resample_backward(const ConstView& dy, Resampling how, const View& dx, float beta,
                       Stream stream);

}  // namespace cpu

FIRN_KERNEL(resample)
FIRN_KERNEL(resample_backward)

}  // namespace firn::kernels
