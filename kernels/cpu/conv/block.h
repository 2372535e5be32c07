// The convolution of a block of images on one thread: x [n, h, w, c], w [k, r, s, c/groups] and y
// [n, p, q, k] in memory order (channels-last, no gaps), f32 or f64. Depthwise convolutions run
// along the channels. All others copy the inputs of every output into a row of a panel (im2col)
// that fits a cache, and multiply panel by panel.
#pragma once

#include "kernels/cpu/conv/onednn.h"
#include "kernels/plan/conv_sizes.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Returns the scratch memory of a pass over such a block, as slot_bytes() counts it.
template <class T>
std::int64_t conv_block_scratch(ConvPass pass, const ConvSizes& z);
/// y = conv(x, w).
template <class T>
void conv_forward_block(const ConvSizes& z, const T* x, const T* w, T* y);
/// dx += the gradient of the input.
template <class T>
void conv_data_block(const ConvSizes& z, const T* dy, const T* w, T* dx);
/// dw += the gradient of the weight.
template <class T>
void conv_weight_block(const ConvSizes& z, const T* dy, const T* x, T* dw);

}  // namespace firn::kernels::cpu::FIRN_ISA
