// The microkernel that multiplies in f32, for any CPU.
#pragma once

#include "kernels/cpu/gemm/microkernel.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Multiplies factors of f32, and 16-bit ones, which it packs as f32.
const Microkernel& fma();
/// True if fma() multiplies f32 factors [m, k] x [k, n] faster than the library does. With AVX2 it
/// does, unless the product is so thin that packing costs more. With AVX-512 the library is as
/// fast, except for a few rows x by a layer's weight (x w^T), which fill half of its registers. On
/// AMD's CPUs the exception holds for up to 256 rows.
/// `columns` is true if the right factor's columns are contiguous, as those of w^T are.
bool fma_beats_library(std::int64_t m, std::int64_t n, std::int64_t k, bool columns);

}  // namespace firn::kernels::cpu::FIRN_ISA
