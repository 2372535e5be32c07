// The CUDA runtime for host code: .cpp files, which hold no device code, include this and not
// gpu.h.
#pragma once

#include <cuda_runtime_api.h>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"

namespace firn::gpu {

using runtime::check_cuda;

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace firn::gpu
