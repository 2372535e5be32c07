// Contract of pooling: windows over the last two axes of x [n, c, h, w]. x and y share a floating
// dtype, as do their gradients but that dx may be of the compute dtype; any strides (loops run
// along the fastest axis of y or dx). Sums run in f32 (f64 for f64), over a window in row-major
// order; backward gathers, over windows in row-major order.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/math/window.h"

namespace firn::kernels {

/// Height first, then width. Window i of an axis spans the positions begin, begin + dilation, ...
/// of which those outside of the image are left out.
struct PoolWindows {
  std::array<std::int64_t, 2> size{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  bool count_padding = true;  ///< divide by what of the window lies in the padded image
  bool adaptive = false;      ///< spans floor(i*in/out) to ceil((i+1)*in/out); the rest is not read
};

/// The windows along one axis of images: 0 the height, 1 the width.
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

/// y = the largest of each window, NaN first; index (i32, y's shape, same strides as y) = h*W + w
/// of it, the first in row-major order where several are equal; index.data == nullptr: not wanted.
/// A window without any position in the image (dilation) gives -infinity and -1.
void max_pool(const ConstView& x, const PoolWindows& windows, const View& y, const View& index,
              Stream stream);
/// dx = beta*dx + dy put where index says; beta is 0 or 1.
void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream stream);
/// y = the mean of each window. Dilations are 1, and every window has a position in the image.
void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream stream);
void avg_pool_backward(const ConstView& dy, const PoolWindows& windows, const View& dx, float beta,
                       Stream stream);

}  // namespace cpu

FIRN_KERNEL(max_pool)
FIRN_KERNEL(max_pool_backward)
FIRN_KERNEL(avg_pool)
FIRN_KERNEL(avg_pool_backward)

}  // namespace firn::kernels
