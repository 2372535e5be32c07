// What .cu files use of CUDA beyond the language, in one place. So nvcc compiles the same sources
// for a GPU, and the host's compiler for the simulator (tests/cusim).
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

#include <cstddef>

#include "firn/kernel_support.h"
#include "kernels/cuda/device/host.h"

namespace firn::gpu {

/// Runs `kernel` on the stream's device, with `shared` bytes of dynamic shared memory (48 KB at
/// most).
template <class... Parameters, class... Values>
void launch(const char* op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared, Stream stream, Values&&... values) {
  check_cuda(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  runtime::note_kernel(op);
#ifdef FIRN_HAS_CUSIM
  cusim::launch(kernel, grid, block, shared, native(stream), static_cast<Parameters>(values)...);
#else
  kernel<<<grid, block, shared, native(stream)>>>(static_cast<Parameters>(values)...);
#endif
  check_cuda(cudaGetLastError(), op, "kernel launch");
}

/// The block's dynamic shared memory, 16-byte aligned.
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

}  // namespace firn::gpu
