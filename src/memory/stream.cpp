#include "firn/stream.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "memory/cuda.h"

namespace firn {

Stream current_stream(Device device) noexcept { return {device, nullptr}; }

bool built_with_cuda() noexcept { return kHasCuda; }

int cuda_device_count() noexcept {
  if constexpr (kHasCuda) return memory::cuda::device_count();
  return 0;
}

void require_device(const char* op, Device device) {
  if (device.is_cpu()) return;
  if constexpr (kHasCuda) {
    std::string why;
    const int count = memory::cuda::device_count(&why);
    if (device.index < count) return;
    throw DeviceError(op, count > 0 ? fmt::format("{} does not exist: this machine has {} device(s)",
                                                  to_string(device), count)
                                    : fmt::format("{} cannot be used: {}", to_string(device), why),
                      "use the CPU, or a machine with an NVIDIA GPU and its driver");
  }
  throw DeviceError(op, fmt::format("{} cannot be used: this firn was built without CUDA",
                                    to_string(device)),
                    "build with -DFIRN_CUDA=ON where nvcc is installed, or use the CPU");
}

void synchronize(Device device) {
  require_device("synchronize", device);
  if constexpr (kHasCuda) {
    if (device.is_cuda()) memory::cuda::synchronize(device.index);
  }
}

void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  if (dst_device.is_cpu() && src_device.is_cpu()) {
    std::memcpy(dst, src, bytes);
    return;
  }
  if constexpr (kHasCuda)
    memory::cuda::copy(dst, src, bytes, dst_device.is_cuda() ? dst_device.index : src_device.index);
}

void zero_bytes(void* dst, Device device, std::size_t bytes) {
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memset(dst, 0, bytes);
    return;
  }
  if constexpr (kHasCuda) memory::cuda::zero(dst, bytes, device.index);
}

}  // namespace firn
