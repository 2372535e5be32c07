// What a .cu file sees of CUDA beyond the language, in one place so that the same sources can be
// compiled for something else than nvcc. Rules for kernels: no <<< >>> but gpu::launch; internal
// linkage; trivially copyable parameters, 4 KB at most; 64-bit sizes and strides; blocks a multiple
// of 32 threads; barriers and full-mask shuffles in uniform control flow only; no floating-point
// atomics.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>

#include "firn/error.h"
#include "firn/stream.h"

namespace firn::gpu {

/// Throws Error naming the op, the call and what CUDA said.
inline void check(cudaError_t status, const char* op, const char* call) {
  if (status == cudaSuccess) return;
  throw Error(op,
              std::string(call) + " failed: " + cudaGetErrorName(status) + ", " +
                  cudaGetErrorString(status),
              "errors of earlier kernels can show up here; CUDA_LAUNCH_BLOCKING=1 finds the place");
}

/// Runs `kernel` on the stream's device.
template <class... Parameters, class... Values>
void launch(const char* op, void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
            Values&&... values) {
  check(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream.handle)>>>(
      static_cast<Parameters>(values)...);
  check(cudaGetLastError(), op, "kernel launch");
}

}  // namespace firn::gpu
