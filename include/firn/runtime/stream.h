// Streams of device work, copies between devices, and the devices that this process has.
//
// Work for a CUDA device is queued on a stream and runs later, in the order of that stream. A
// thread queues everything on its current stream: one per device, shared by all threads, unless a
// StreamScope names another. The host waits for a device only in synchronize() and when it reads
// from it; host_waits() counts how often.
#pragma once

#include <cstddef>
#include <cstdint>

#include "firn/device.h"

namespace firn {

/// A queue of work on a device; on the CPU, work is done when the call returns.
struct Stream {
  Device device = Device::cpu();  ///< the device whose queue it is
  void* handle = nullptr;  ///< cudaStream_t on a CUDA device, never the legacy default stream

  constexpr bool operator==(const Stream&) const noexcept = default;
};

/// Returns the stream that this thread's ops on `device` use. The first use of a device throws
/// DeviceError if this process cannot use it; later calls do not throw.
Stream current_stream(Device device);

/// While alive, `stream` is this thread's stream on its device.
class StreamScope {
 public:
  [[nodiscard]] explicit StreamScope(Stream stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int device_;  ///< -1: the CPU, nothing to restore
  void* previous_ = nullptr;
};

/// A further stream of the device, which lives as long as this object. Only events order its work
/// with that on other streams. A tensor that is made on one stream and used on another needs
/// Storage::record_use().
class SideStream {
 public:
  /// Throws DeviceError if this process cannot use the device.
  explicit SideStream(Device device);
  ~SideStream();
  SideStream(SideStream&& other) noexcept : stream_(other.stream_) { other.stream_ = {}; }
  SideStream& operator=(SideStream&& other) noexcept;

  /// The stream.
  Stream get() const noexcept { return stream_; }
  /// The stream.
  operator Stream() const noexcept { return stream_; }

 private:
  Stream stream_;
};

/// A position in a stream. Does nothing on the CPU, whose work is done when a call returns.
class Event {
 public:
  Event() noexcept = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  /// Marks the end of what is queued on `stream` so far.
  void record(Stream stream);
  /// Later work of `stream` waits for the mark; the host does not. Does nothing without a mark.
  void block(Stream stream) const;
  /// The host waits for the mark. Throws what synchronize() throws.
  void synchronize() const;
  /// Returns true if the work before the mark is done, or without a mark. Never waits. Throws Error
  /// if CUDA reports a failure of earlier work.
  bool done() const;

 private:
  void* handle_ = nullptr;
  Device device_;
};

/// Waits until all work queued on the device is done. Throws Error for faults in that work that
/// only the device could see, such as an index outside its axis.
void synchronize(Device device);
/// Waits until all work queued on one stream is done, and throws as above.
void synchronize(Stream stream);

/// Returns how often this process has waited for a device so far.
std::uint64_t host_waits() noexcept;

/// Returns true if this library was built with CUDA kernels.
bool built_with_cuda() noexcept;

/// Number of usable CUDA devices; 0 without a driver, a device or a CUDA build. Never throws.
int cuda_device_count() noexcept;

/// Throws DeviceError if tensors cannot live on `device`, with the reason: built without CUDA, no
/// driver, driver too old, no device, no such device.
void require_device(const char* op, Device device);

/// Describes how a device computes. For the CPU this is describe_cpu(). For a CUDA device it is its
/// name, architecture and multiprocessors, and the version of its library of matrix products. A
/// line follows for each kind of product of which that library refused an algorithm that it had
/// chosen. Example: "NVIDIA H100, sm_90, 132 multiprocessors, products by cuBLASLt 130100
/// (libcublasLt.so.13)". Throws DeviceError as require_device() does.
std::string describe(Device device);

/// Copies `bytes` between memory of any two devices, in the order of their current streams. Host
/// memory can be reused when it returns. Waits for the device if it copies to the host or from
/// pinned memory, and then throws as synchronize() does. Throws Error while a graph is being
/// captured, unless both sides are on devices.
void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes);
/// Copies between pinned memory of the host (PinnedMemory) and a device, without waiting. The
/// memory must not change before the stream has done the copy. In a captured graph, every replay
/// copies again.
void copy_bytes_async(void* dst, Device dst_device, const void* src, Device src_device,
                      std::size_t bytes);
/// Sets `bytes` bytes to zero, in the order of the device's current stream.
void zero_bytes(void* dst, Device device, std::size_t bytes);

}  // namespace firn
