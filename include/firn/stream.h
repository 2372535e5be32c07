// Streams of device work, and what devices this process has.
#pragma once

#include <cstddef>

#include "firn/device.h"

namespace firn {

/// A queue of work on a device; on the CPU, work is done when the call returns.
struct Stream {
  Device device;
  void* handle = nullptr;  ///< cudaStream_t on a CUDA device; null: the default stream
};

/// The stream that ops on `device` use.
Stream current_stream(Device device) noexcept;

/// Waits until all work given to the device is done.
void synchronize(Device device);

/// Whether this library was built with CUDA kernels.
bool built_with_cuda() noexcept;

/// Number of usable CUDA devices; 0 without a driver, a device or a CUDA build. Never throws.
int cuda_device_count() noexcept;

/// Throws DeviceError, saying which of the three it is (built without CUDA, no driver, no such
/// device), where tensors cannot live on `device`.
void require_device(const char* op, Device device);

/// Copies `bytes` between memory of any two devices; both sides are ready when it returns.
void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes);
/// Sets `bytes` bytes to zero.
void zero_bytes(void* dst, Device device, std::size_t bytes);

}  // namespace firn
