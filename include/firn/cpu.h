// What firn uses of the CPU.
#pragma once

#include <string>

namespace firn {

/// How the CPU computes: its threads, the instruction set of the kernels, the level up to which
/// units are chosen at run time, and what multiplies matrices. For example "2 threads, kernels for
/// avx512 chosen of 3 variants, level amx, products: f32 by oneDNN, bf16 by AMX bf16, f16 by AMX
/// bf16 in two parts". The environment variable FIRN_CPU_ISA (base, avx2, avx512, avx512bf16 or
/// amx) sets a lower level. Throws Error if it holds another word or a level that the CPU lacks.
std::string describe_cpu();

}  // namespace firn
