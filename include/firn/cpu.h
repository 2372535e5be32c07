// Describes how firn uses the CPU.
#pragma once

#include <string>

namespace firn {

/// Describes how the CPU computes: threads, instruction set of the kernels, level up to which units
/// are chosen at run time, and libraries for matrix products. For example "2 threads, kernels for
/// avx512 chosen of 3 variants, level amx, products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX
/// bf16 in two parts". The environment variable FIRN_CPU_ISA (base, avx2, avx512, avx512bf16 or
/// amx) sets a lower level. Throws Error if it has another value, or a level that the CPU lacks.
std::string describe_cpu();

}  // namespace firn
