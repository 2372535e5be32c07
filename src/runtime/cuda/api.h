// Shared by the files of this folder: calls of the CUDA runtime and their errors.
#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"

namespace firn::memory::cuda {

using runtime::check_cuda;

/// Returns true if a call succeeded, and else clears the error, so that no later call reports it.
/// Use it for calls whose failure is handled or harmless.
inline bool succeeded(cudaError_t status) noexcept {
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

inline void set_device(int device, const char* op) {
  check_cuda(cudaSetDevice(device), op, "cudaSetDevice");
}

inline cudaStream_t native(void* stream) noexcept { return static_cast<cudaStream_t>(stream); }
inline cudaStream_t native(Stream stream) noexcept { return native(stream.handle); }

/// While alive, this thread may call cudaMalloc, cudaFree and the like. Without it, CUDA refuses
/// them while a stream of the thread is captured, though they do not concern that stream.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept : exchanged_(exchange()) {}
  ~RelaxedCapture() {
    if (exchanged_) exchange();
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  bool exchange() noexcept { return succeeded(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool exchanged_;
};

inline bool is_capturing(void* stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return succeeded(cudaStreamIsCapturing(native(stream), &status)) &&
         status != cudaStreamCaptureStatusNone;
}

}  // namespace firn::memory::cuda
