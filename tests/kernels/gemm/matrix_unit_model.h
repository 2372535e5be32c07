// The matrix unit (AMX) in plain code: a microkernel that runs on every CPU.
#pragma once

#include "kernels/cpu/gemm/microkernel.h"

namespace firn::testing {

/// Packs, splits and adds as kernels::cpu::amx() does, and gives its bits, for factors of bf16, f16
/// or f32.
const kernels::cpu::Microkernel& amx_model(DType dtype);

}  // namespace firn::testing
