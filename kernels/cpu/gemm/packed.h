// GEMM by the microkernels. Factors are packed where they cannot be read in place. The result is
// cut into blocks, and each block is finished while it is in the cache.
#pragma once

#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/gemm.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Computes gemm() of one product [m, k] x [k, n] of f32 or 16-bit factors, for which `unit` was
/// chosen. The bits of an element depend on its row, its column, k and `unit` alone.
void packed_product(const Microkernel& unit, const ConstView& a, const ConstView& b, const View& c,
                    const GemmArgs& args, const Epilogue& epilogue);

}  // namespace firn::kernels::cpu::FIRN_ISA
