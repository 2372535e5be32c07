// A block of images of a convolution, on one thread: x [n, h, w, c], w [k, r, s, c/groups] and
// y [n, p, q, k] as they lie in memory (channels-last, no gaps), f32 or f64. Depthwise convolutions
// run along the channels; all others copy the input under every output into a row of a panel
// (im2col) and multiply, a panel that fits a cache at a time.
#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace firn::kernels::cpu {

struct ConvSizes {
  std::int64_t n, c, h, w;  ///< the input
  std::int64_t k, r, s;     ///< output channels, taps down and across
  std::int64_t p, q;        ///< the output
  ConvGeometry geometry;

  std::int64_t group_c() const noexcept { return c / geometry.groups; }
  std::int64_t group_k() const noexcept { return k / geometry.groups; }
  std::int64_t row() const noexcept { return r * s * group_c(); }  ///< numbers under one output
  std::int64_t image_work() const noexcept { return p * q * k * row(); }  ///< multiplications
  bool depthwise() const noexcept { return c == geometry.groups && k == geometry.groups && c > 1; }

  /// x [n, c, h, w], w [k, c/groups, r, s] and y [n, k, p, q].
  static ConvSizes of(const ConstView& x, const ConstView& w, const ConstView& y,
                      const ConvGeometry& geometry) {
    return {x.shape[0], x.shape[1], x.shape[2], x.shape[3], w.shape[0],
            w.shape[2], w.shape[3], y.shape[2], y.shape[3], geometry};
  }
  ConvSizes with_images(std::int64_t count) const {
    ConvSizes z = *this;
    z.n = count;
    return z;
  }
};

/// y = conv(x, w).
template <class T>
void conv_forward_block(const ConvSizes& z, const T* x, const T* w, T* y);
/// dx += the gradient of the input.
template <class T>
void conv_data_block(const ConvSizes& z, const T* dy, const T* w, T* dx);
/// dw += the gradient of the weight.
template <class T>
void conv_weight_block(const ConvSizes& z, const T* dy, const T* x, T* dw);

}  // namespace firn::kernels::cpu
