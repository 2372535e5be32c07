#include "kernels/cpu/gemm/microkernel.h"

#include "kernels/cpu/gemm/fma.h"
#include "kernels/cpu/gemm/matrix_unit.h"
#include "kernels/gemm.h"
#include "kernels/settings/settings.h"

// The library that multiplies where firn's kernels do not.
#ifdef FIRN_HAS_ONEDNN
#define FIRN_LIBRARY "oneDNN"
#else
#define FIRN_LIBRARY "Eigen"
#endif

namespace firn::kernels::cpu::FIRN_ISA {

#if defined(__x86_64__)
namespace {

/// True if vdpbf16ps is to multiply. AMD's CPUs run it at twice the rate of f32. Intel's run it at
/// half of that rate, so there the user has to ask for it by name.
bool uses_dots() {
  return isa() == Isa::avx512_bf16 && (__builtin_cpu_is("amd") || isa_is_forced());
}

}  // namespace
#endif

const Microkernel& microkernel(DType dtype) {
#if defined(__x86_64__)
  if (dtype != DType::f32 && has_amx_bf16()) return amx(dtype);
  if (dtype == DType::bf16 && uses_dots()) return avx512_bf16();
#endif
  return fma();
}

bool multiplies_bf16() { return &microkernel(DType::bf16) != &fma(); }

const char* product_unit(DType dtype) {
  if (dtype != DType::f32) return microkernel(dtype).name;
  if (const Microkernel* const unit = bf16x3_kernel()) return unit->name;
  if (batch_invariance_required()) return fma().name;
  constexpr std::int64_t kLarge = 1024, kBatch = 64;
  if (fma_beats_library(kLarge, kLarge, kLarge, false))
    return bf16x3_allowed() ? "AVX f32 and " FIRN_LIBRARY " (no unit for bf16x3)"
                            : "AVX f32 and " FIRN_LIBRARY;
  if (fma_beats_library(kBatch, kLarge, kLarge, true))
    return bf16x3_allowed() ? "AVX-512 f32 and " FIRN_LIBRARY " (no unit for bf16x3)"
                            : "AVX-512 f32 and " FIRN_LIBRARY;
  return bf16x3_allowed() ? FIRN_LIBRARY " (no unit for bf16x3)" : FIRN_LIBRARY;
}

const Microkernel* bf16x3_kernel() {
#if defined(__x86_64__)
  if (bf16x3_allowed() && has_amx_bf16()) return &amx(DType::f32);
#endif
  return nullptr;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
