// Contract of the three products of a convolution. Operands have rank 4 and share one floating
// dtype unless said otherwise: x [n, c, h, w], w [k, c/groups, r, s], y and dy [n, k, p, q]. If
// conv_takes_volumes() says so, they may have rank 5: x [n, c, d, h, w], w [k, c/groups, t, r, s],
// y [n, k, o, p, q]. conv2d (firn/ops/conv.h) has checked the sizes. Views may have any strides;
// those with axis 1 fastest in memory (channels-last) are not copied. Products accumulate in f32
// (f64 for f64). The order of a sum depends on shapes, dtypes, geometry and beta alone; on CUDA
// devices also on the views' layout (order of axes, alignment). Empty tensors are allowed.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/dispatch.h"

namespace firn::kernels {

enum class ConvPass : std::uint8_t { forward, data, weight };

/// Geometry along the depth of volumes.
struct ConvDepth {
  std::int64_t stride = 1;
  std::int64_t before = 0, after = 0;  ///< slices of zeros
  std::int64_t dilation = 1;
};

/// Geometry of a convolution. Pairs hold the height first, then the width.
struct ConvGeometry {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> before{0, 0};  ///< zeros above and to the left
  std::array<std::int64_t, 2> after{0, 0};   ///< zeros below and to the right
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  ConvDepth depth{};
};

namespace cpu {

/// y = conv(x, w) + bias, and with `relu` the larger of that and 0 (NaN stays NaN). bias [k] of any
/// floating dtype, or data == nullptr.
void conv_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                  const ConvGeometry& geometry, const View& y, Stream stream);

/// dx = beta*dx + the gradient of the input, from dy. beta is 0 or 1; dx is f32 or of the operands'
/// dtype. This is also the forward pass of a transposed convolution. p and q need not be the sizes
/// that the geometry gives for h and w: inputs that no output reads get no gradient.
void conv_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                        const View& dx, float beta, Stream stream);

/// dw = beta*dw + the gradient of the weight. beta is 0 or 1; dw is f32 or of the operands' dtype.
void conv_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                          const View& dw, float beta, Stream stream);

/// True if the product takes volumes of these shapes and dtypes: those of x (or dx), w (or dw) and
/// y (or dy). It is always false on CUDA devices.
bool conv_takes_volumes(ConvPass pass, const ConstView& x, const ConstView& w, const ConstView& y,
                        bool bias, const ConvGeometry& geometry);

}  // namespace cpu

/// Operations of a convolution with outputs y and weight w. Each of its gradients has the same
/// number.
inline double conv_flops(const Shape& y, const Shape& w) {
  return w[0] == 0 ? 0 : 2.0 * double(y.product()) * double(w.product() / w[0]);
}
inline double conv_forward_flops(const ConstView&, const ConstView& w, const ConstView&, bool,
                                 const ConvGeometry&, const View& y, const auto&...) {
  return conv_flops(y.shape, w.shape);
}
inline double conv_data_gradient_flops(const ConstView& dy, const ConstView& w, const auto&...) {
  return conv_flops(dy.shape, w.shape);
}
inline double conv_weight_gradient_flops(const ConstView& dy, const ConstView&, const ConvGeometry&,
                                         const View& dw, const auto&...) {
  return conv_flops(dy.shape, dw.shape);
}
FIRN_KERNEL_OF_PRODUCTS(conv_forward, conv_forward_flops)
FIRN_KERNEL_OF_PRODUCTS(conv_data_gradient, conv_data_gradient_flops)
FIRN_KERNEL_OF_PRODUCTS(conv_weight_gradient, conv_weight_gradient_flops)

FIRN_CPU_VARIANTS_OF(conv_takes_volumes)
inline bool conv_takes_volumes(ConvPass pass, const ConstView& x, const ConstView& w,
                               const ConstView& y, bool bias, const ConvGeometry& geometry) try {
  return x.device.is_cpu() && FIRN_ON_CPU(conv_takes_volumes)(pass, x, w, y, bias, geometry);
} catch (const std::bad_alloc&) {
  firn::detail::out_of_memory("conv");
}

}  // namespace firn::kernels
