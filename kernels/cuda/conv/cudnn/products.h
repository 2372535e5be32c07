// The three products of a convolution as cuDNN computes them. On the simulator
// tests/cusim/libraries/cudnn.cpp computes them, and refuses what the library refuses.
//
// Operands and results are channels-last, not empty and not f64. Sizes are those that the geometry
// gives, and no padding is negative. Other dtypes are as in kernels/conv.h. Each function returns
// false, with nothing done, if cuDNN is not installed or has no plan that keeps the contract. The
// contract is: sums in f32, no TF32 unless it is allowed, and the same bits from run to run unless
// allow_nondeterministic() is on.
//
// A plan is made at the first call with a shape, which may take seconds, and cached per device and
// thread. While a graph is captured no plan can be made; an Error then says to run a step first.
#pragma once

#include "kernels/conv.h"

namespace firn::kernels::cuda {

/// `bias` is k contiguous elements of x's dtype, or null.
bool cudnn_forward(const ConstView& x, const ConstView& w, const void* bias, bool relu,
                   const ConvGeometry& geometry, const View& y, Stream stream);
bool cudnn_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                         const View& dx, float beta, Stream stream);
bool cudnn_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                           const View& dw, float beta, Stream stream);

/// cuDNN never computes the f32 weight gradient of 16-bit operands with fewer channels in a group
/// than this.
inline constexpr std::int64_t kLeastWideChannels = 8;

}  // namespace firn::kernels::cuda
