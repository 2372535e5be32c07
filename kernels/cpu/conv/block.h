// A block of images of a convolution, on one thread: x [n, h, w, c], w [k, r, s, c/groups] and
// y [n, p, q, k] as they lie in memory (channels-last, no gaps), f32 or f64. Depthwise convolutions
// run along the channels; all others copy the input under every output into a row of a panel
// (im2col) and multiply, a panel that fits a cache at a time.
#pragma once

#include "kernels/plan/conv_sizes.h"

namespace firn::kernels::cpu {

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
