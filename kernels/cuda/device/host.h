// The CUDA runtime as host code of this folder uses it: for .cpp files, which hold no device code.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "firn/error.h"
#include "firn/stream.h"

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

}  // namespace firn::gpu
