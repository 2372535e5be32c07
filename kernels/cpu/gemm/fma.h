// The microkernel that multiplies in f32, for any CPU.
#pragma once

#include "kernels/cpu/gemm/microkernel.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Factors of f32, and 16-bit ones, which it packs as f32.
const Microkernel& fma();

}  // namespace firn::kernels::cpu::FIRN_ISA
