// The three products of a convolution as cuDNN computes them. On the simulator they are those of
// tests/cusim/cudnn.cpp, which refuses what the library refuses.
//
// Operands and results are channels-last, not empty and not f64, sizes are those that the geometry
// gives, and nothing is cut off (no negative padding); dtypes else as in kernels/conv.h. Each
// returns false, with nothing done, where cuDNN is not installed or has no plan that keeps to the
// contract: sums in f32, f32 that is f32 unless TF32 is allowed, the same bits from run to run
// unless allow_nondeterministic() says otherwise.
//
// A plan is made at the first call with a shape, which may take seconds, and kept by device and
// thread. While a graph is recorded none can be made: Error then says to run a step before.
#pragma once

#include "kernels/conv.h"

namespace firn::kernels::cuda {

/// bias: a vector of k elements of x's dtype that follow each other, or null.
bool cudnn_forward(const ConstView& x, const ConstView& w, const void* bias, bool relu,
                   const ConvGeometry& geometry, const View& y, Stream stream);
bool cudnn_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                         const View& dx, float beta, Stream stream);
bool cudnn_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                           const View& dw, float beta, Stream stream);

/// Of the weight gradient in f32 from 16-bit operands: fewer channels in a group than this are
/// never taken.
inline constexpr std::int64_t kLeastWideChannels = 8;

}  // namespace firn::kernels::cuda
