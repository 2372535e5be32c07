// The three products of a convolution (kernels/conv.h) along one to three axes. If the backend does
// not take volumes, their products are made from those of images: the slices along depth that the
// kernel's taps read become channels.
//
// Views have rank 4, or rank 5 for volumes: x [n, c, d, h, w], w [k, c/groups, t, r, s], y and dy
// [n, k, o, p, q], where x, y and dy are channels-last but for a gradient that is written. The
// kernel's contract holds for beta, dtypes and the order of sums.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/conv.h"

namespace firn::ops {

/// Depth first, then height and width.
struct VolumeGeometry {
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::array<std::int64_t, 3> before{0, 0, 0};
  std::array<std::int64_t, 3> after{0, 0, 0};
  std::array<std::int64_t, 3> dilation{1, 1, 1};
  std::int64_t groups = 1;

  /// Returns the geometry of the images.
  kernels::ConvGeometry plane() const noexcept {
    return {.stride = {stride[1], stride[2]},
            .before = {before[1], before[2]},
            .after = {after[1], after[2]},
            .dilation = {dilation[1], dilation[2]},
            .groups = groups};
  }
  kernels::ConvGeometry whole() const noexcept {
    kernels::ConvGeometry g = plane();
    g.depth = {
        .stride = stride[0], .before = before[0], .after = after[0], .dilation = dilation[0]};
    return g;
  }
};

/// y = conv(x, w) + bias, and with `relu` the larger of that and 0.
void conv_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                  const VolumeGeometry& geometry, const View& y, Stream stream);
/// dx = beta*dx + the gradient of the input.
void conv_data_gradient(const ConstView& dy, const ConstView& w, const VolumeGeometry& geometry,
                        const View& dx, float beta, Stream stream);
/// dw = beta*dw + the gradient of the weight.
void conv_weight_gradient(const ConstView& dy, const ConstView& x, const VolumeGeometry& geometry,
                          const View& dw, float beta, Stream stream);

}  // namespace firn::ops
