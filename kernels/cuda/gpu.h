// What a .cu file sees of CUDA beyond the language, in one place, so that the same sources are
// compiled by nvcc for a GPU and by the host's compiler for the simulator (tests/cusim).
//
// Rules for kernels: no <<< >>> but gpu::launch; dynamic shared memory through gpu::dynamic_shared
// only; internal linkage; trivially copyable parameters, 4 KB at most; 64-bit sizes and strides;
// blocks a multiple of 32 threads; barriers and full-mask shuffles in uniform control flow only,
// and no return before one; no reliance on lock-step (__syncwarp()); no floating-point atomics.
#pragma once

#ifdef FIRN_HAS_CUSIM
#include <cusim.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <cstddef>
#include <string>

#include "firn/error.h"
#include "firn/stream.h"
#include "memory/capture.h"

namespace firn::gpu {

/// Throws Error naming the op, the call and what CUDA said.
inline void check(cudaError_t status, const char* op, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // it is not reported again
  throw Error(op,
              std::string(call) + " failed: " + cudaGetErrorName(status) + ", " +
                  cudaGetErrorString(status),
              "errors of earlier kernels can show up here; CUDA_LAUNCH_BLOCKING=1 finds the place");
}

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Runs `kernel` on the stream's device, with `shared` bytes of dynamic shared memory (48 KB at
/// most).
template <class... Parameters, class... Values>
void launch(const char* op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared, Stream stream, Values&&... values) {
  check(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  memory::note_kernel(op);
#ifdef FIRN_HAS_CUSIM
  cusim::launch(kernel, grid, block, shared, native(stream), static_cast<Parameters>(values)...);
#else
  kernel<<<grid, block, shared, native(stream)>>>(static_cast<Parameters>(values)...);
#endif
  check(cudaGetLastError(), op, "kernel launch");
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
