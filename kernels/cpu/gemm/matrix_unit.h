// The microkernels that multiply bf16 numbers. They may run only on a CPU with these instructions.
#pragma once

#include "kernels/cpu/gemm/microkernel.h"

namespace firn::kernels::cpu {

/// Returns the kernel for bf16, f16 (in two parts, without error) or f32 (in three parts).
const Microkernel& amx(DType dtype);
/// Returns the kernel for bf16 by vdpbf16ps.
const Microkernel& avx512_bf16();

}  // namespace firn::kernels::cpu
