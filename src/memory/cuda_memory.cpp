// Memory and devices through the CUDA runtime. Compiled in CUDA builds only.
#include <cuda_runtime_api.h>

#include <mutex>

#include "base/check.h"
#include "memory/cuda.h"

namespace firn::memory::cuda {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw DeviceError("cuda", fmt::format("{} answered {} ({})", call, cudaGetErrorString(status),
                                        static_cast<int>(status)));
}

void* device_allocate(std::size_t bytes, int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clear it: the caller tries again
    return nullptr;
  }
  check(status, "cudaMalloc");
  return block;
}

void device_release(void* block, std::size_t, int device) noexcept {
  cudaSetDevice(device);
  cudaFree(block);
}

}  // namespace

int device_count(std::string* why) noexcept {
  static int count = 0;
  static std::string* reason = new std::string;
  static std::once_flag once;
  std::call_once(once, [] {
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
      count = 0;
      *reason = fmt::format("{} (cudaGetDeviceCount answered {})", cudaGetErrorString(status),
                            static_cast<int>(status));
      cudaGetLastError();
    }
  });
  if (why) *why = *reason;
  return count;
}

Source source() noexcept { return {device_allocate, device_release}; }

void synchronize(int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void copy(void* dst, const void* src, std::size_t bytes, int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

void zero(void* dst, std::size_t bytes, int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMemset(dst, 0, bytes), "cudaMemset");
}

}  // namespace firn::memory::cuda
