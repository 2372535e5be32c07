// Contract of the kernels of language models. Only the CPU has them.
#pragma once

#include "firn/lm/gguf_type.h"
#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// Computes y (f16, bf16, f32 or f64) from the blocks x (u8) of a type whose blocks have several
/// elements. Both are in row-major order without gaps. Values are computed in f32.
void dequantize(const ConstView& x, lm::GgufType type, const View& y, Stream stream);

}  // namespace cpu

FIRN_KERNEL_CPU(dequantize)

}  // namespace firn::kernels
