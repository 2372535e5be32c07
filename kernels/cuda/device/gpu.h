// Everything that .cu files use of CUDA beyond the language, in one place. So nvcc compiles their
// source for a GPU, and the host's compiler compiles it for the simulator (tests/cusim).
//
// Rules for kernels: gpu::launch instead of <<< >>>; dynamic shared memory through
// gpu::dynamic_shared only; internal linkage; trivially copyable parameters, 4 KB at most; 64-bit
// sizes and strides; blocks a multiple of 32 threads; barriers and full-mask shuffles in uniform
// control flow only, and no return before one; no reliance on lock-step (__syncwarp()); no
// floating-point atomics.
#pragma once

#ifdef FIRN_HAS_CUSIM
#include <cusim.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/host.h"
#include "kernels/math/macros.h"

namespace firn::gpu {

/// Runs `kernel` on the stream's device, with `shared` bytes of dynamic shared memory (48 KB at
/// most). Does nothing in a dry run.
template <class... Parameters, class... Values>
void launch(const char* op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared, Stream stream, Values&&... values) {
  if (runtime::dry_run()) return;
  check_cuda(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  runtime::note_kernel(op);
#ifdef FIRN_HAS_CUSIM
  cusim::launch(kernel, grid, block, shared, native(stream), static_cast<Parameters>(values)...);
#else
  kernel<<<grid, block, shared, native(stream)>>>(static_cast<Parameters>(values)...);
#endif
  check_cuda(cudaGetLastError(), op, "kernel launch");
}

/// Returns the block's dynamic shared memory, 16-byte aligned.
#ifdef FIRN_HAS_CUSIM
template <class T>
T* dynamic_shared() {
  return cusim::dyn_smem<T>();
}
#else
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char firn_dynamic_shared[];
  return reinterpret_cast<T*>(firn_dynamic_shared);
}
#endif

// ---- Functions that the hardware has in one instruction: within 2^-22 of their size, and
// subnormal numbers are 0. On a host they are as inexact: the last two bits are cut off. ----

namespace detail {
inline float rough(float y) {
  if (std::fabs(y) < 0x1p-126f) return std::copysign(0.f, y);
  if (std::isnan(y)) return y;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, y) & ~3u);
}
}  // namespace detail

/// 2^x
FIRN_HD inline float exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return detail::rough(std::exp2(x));
#endif
}
/// 1/x, 0 for x near the largest numbers
FIRN_HD inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return detail::rough(1.f / x);
#endif
}

}  // namespace firn::gpu
