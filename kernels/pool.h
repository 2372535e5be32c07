// Contract of pooling: windows over the last two axes of x [n, c, h, w]. Views share one floating
// dtype, but dx may have the compute dtype. They may have any strides; loops run along the fastest
// axis of y or dx. Sums accumulate in f32 (f64 for f64), over a window in row-major order. The
// backward pass gathers over windows in row-major order.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/math/image/window.h"

namespace firn::kernels {

/// Windows of a pooling. Pairs hold the height first, then the width. Window i of an axis spans the
/// positions begin, begin + dilation, ...; those outside the image are left out.
struct PoolWindows {
  std::array<std::int64_t, 2> size{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  bool count_padding = true;  ///< a mean divides by the window's positions in the padded image
  bool adaptive = false;  ///< spans floor(i*in/out) to ceil((i+1)*in/out); other members are unused
};

/// Returns the windows along one axis of images: 0 is the height, 1 the width.
inline math::WindowAxis window_axis(const PoolWindows& windows, int axis, std::int64_t in,
                                    std::int64_t out) {
  const auto a = static_cast<std::size_t>(axis);
  return {in,
          out,
          windows.size[a],
          windows.stride[a],
          windows.padding[a],
          windows.dilation[a],
          windows.adaptive};
}

namespace cpu {

/// y = the largest value of each window; a NaN wins. index (i32, shape and strides of y, or data ==
/// nullptr) = h*W + w of that value, the first in row-major order among equals. A window without
/// any position in the image (dilation) gives -infinity and -1.
void max_pool(const ConstView& x, const PoolWindows& windows, const View& y, const View& index,
              Stream stream);
/// dx = beta*dx + dy added at the positions in index; beta is 0 or 1.
void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream stream);
/// y = the mean of each window. Dilations are 1, and every window has a position in the image.
void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream stream);
/// dx = beta*dx + the gradient; beta is 0 or 1.
void avg_pool_backward(const ConstView& dy, const PoolWindows& windows, const View& dx, float beta,
                       Stream stream);

}  // namespace cpu

FIRN_KERNEL(max_pool)
FIRN_KERNEL(max_pool_backward)
FIRN_KERNEL(avg_pool)
FIRN_KERNEL(avg_pool_backward)

}  // namespace firn::kernels
