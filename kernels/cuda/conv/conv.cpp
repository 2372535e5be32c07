// Convolutions on CUDA devices. Operands are converted to channels-last. cuDNN computes each
// product that it supports; the others are GEMMs over gathered columns.
#include "kernels/conv.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "firn/error.h"
#include "kernels/cuda/conv/cudnn/products.h"
#include "kernels/cuda/conv/parts.h"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {
namespace {

#ifdef FIRN_HAS_CUDNN
constexpr bool kHasCudnn = true;
#else
constexpr bool kHasCudnn = false;  // built without its headers
#endif

/// True if cuDNN may be used. It may not for f64, empty images, negative padding, or results of
/// other sizes than the geometry gives.
bool asks_cudnn(const ConvSizes& s, const ConvGeometry& g, DType dtype) {
  const auto size = [&](std::size_t axis, std::int64_t in, std::int64_t taps) {
    return (in + g.before[axis] + g.after[axis] - g.dilation[axis] * (taps - 1) - 1) /
               g.stride[axis] +
           1;
  };
  return conv_path().load(std::memory_order_relaxed) == ConvPath::automatic &&
         dtype != DType::f64 && s.c * s.h * s.w > 0 && g.after[0] >= 0 && g.after[1] >= 0 &&
         s.p == size(0, s.h, s.r) && s.q == size(1, s.w, s.s);
}

/// y, x and w are channels-last.
void forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
             const ConvGeometry& geometry, const View& y, Stream stream) {
  if constexpr (kHasCudnn) {
    if (asks_cudnn(ConvSizes::of(x, w, y, geometry), geometry, x.dtype)) {
      std::optional<Vector> vector;
      if (bias.data) vector.emplace(bias, x.dtype, stream);
      const void* const added = vector ? vector->data() : nullptr;
      if (cudnn_forward(x, w, added, relu, geometry, y, stream)) return;
    }
  }
  im2col_forward(x, w, bias, relu, geometry, y, stream);
}

/// dw, dy and x are channels-last.
void weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                     const View& dw, float beta, Stream stream) {
  if constexpr (kHasCudnn) {
    if (asks_cudnn(ConvSizes::of(x, dw, dy, geometry), geometry, x.dtype) &&
        cudnn_weight_gradient(dy, x, geometry, dw, beta, stream)) {
      return;
    }
  }
  im2col_weight_gradient(dy, x, geometry, dw, beta, stream);
}

/// dx may have any layout. Returns true if cuDNN has computed it.
bool data_gradient_by_cudnn(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                            const View& dx, float beta, Stream stream) {
  if constexpr (kHasCudnn) {
    if (!asks_cudnn(ConvSizes::of(dx, w, dy, geometry), geometry, dy.dtype)) return false;
    if (is_channels_last(dx)) return cudnn_data_gradient(dy, w, geometry, dx, beta, stream);
    if (beta != 0) return false;  // the sum would be rounded before it is added
    const ChannelsLastBuffer own(dx.shape, dx.dtype, stream);
    if (!cudnn_data_gradient(dy, w, geometry, own.view(), 0, stream)) return false;
    kernels::copy(own.view(), dx, stream);
    return true;
  } else {
    return false;
  }
}

}  // namespace

void conv_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                  const ConvGeometry& geometry, const View& y, Stream stream) {
  if (y.numel() == 0) return;
  const ChannelsLast images(x, stream), weight(w, stream);
  if (is_channels_last(y)) {
    return forward(images.view(), weight.view(), bias, relu, geometry, y, stream);
  }
  const ChannelsLastBuffer own(y.shape, y.dtype, stream);
  forward(images.view(), weight.view(), bias, relu, geometry, own.view(), stream);
  kernels::copy(own.view(), y, stream);
}

void conv_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                        const View& dx, float beta, Stream stream) {
  if (dx.numel() == 0) return;
  if (dy.numel() == 0) {
    if (beta == 0) kernels::fill(dx, 0.0, stream);
    return;
  }
  const ChannelsLast gradient(dy, stream), weight(w, stream);
  if (data_gradient_by_cudnn(gradient.view(), weight.view(), geometry, dx, beta, stream)) return;
  im2col_data_gradient(gradient.view(), weight.view(), geometry, dx, beta, stream);
}

void conv_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                          const View& dw, float beta, Stream stream) {
  if (dw.numel() == 0) return;
  if (dy.numel() == 0) {
    if (beta == 0) kernels::fill(dw, 0.0, stream);
    return;
  }
  const ChannelsLast gradient(dy, stream), images(x, stream);
  if (is_channels_last(dw)) {
    return weight_gradient(gradient.view(), images.view(), geometry, dw, beta, stream);
  }
  const ChannelsLastBuffer own(dw.shape, compute_dtype(dw.dtype), stream);
  weight_gradient(gradient.view(), images.view(), geometry, own.view(), 0, stream);
  kernels::axpby(1.0, own.view(), beta, dw, stream);
}

}  // namespace firn::kernels::cuda
