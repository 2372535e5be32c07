// Devices, and how many CPU threads kernels use.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace firn {

/// The kinds of devices: the CPU, and GPUs by CUDA.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// Device on which a tensor lives. `Device()` is the CPU, but `{}` is not a device: an argument
/// that is left out must not mean the CPU if default_device() is another.
struct Device {
  DeviceType type = DeviceType::cpu;  ///< the kind
  std::int8_t index = 0;  ///< number of the GPU among those that CUDA shows, from 0; 0 for the CPU

  constexpr explicit Device() noexcept = default;
  /// Throws Error unless `kind` is cpu or cuda, and `number` is in [0, 128) for a CUDA device and 0
  /// for the CPU, which is one device. The first use checks that the machine has the device.
  constexpr Device(DeviceType kind, int number = 0)
      : type(kind), index(static_cast<std::int8_t>(number)) {
    if (kind > DeviceType::cuda || number < 0 || number > (kind == DeviceType::cpu ? 0 : INT8_MAX))
        [[unlikely]]
      refuse(kind, number);
  }

  /// The CPU.
  static constexpr Device cpu() noexcept { return Device(); }
  /// Throws Error unless `index` is in [0, 128).
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
  /// Parses "cpu", "cuda" or "cuda:1". Throws Error for any other text.
  static Device parse(std::string_view text);

  /// True for the CPU.
  constexpr bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  /// True for a GPU.
  constexpr bool is_cuda() const noexcept { return type == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const noexcept = default;

 private:
  [[noreturn]] static void refuse(DeviceType kind, int number);
};

/// "cpu" or "cuda:0".
std::string to_string(Device device);
/// Prints to_string().
std::ostream& operator<<(std::ostream& out, Device device);

/// The device on which this thread makes tensors and modules if none is given: the CPU, or the
/// device of the innermost DeviceScope.
Device default_device() noexcept;

/// While alive, `device` is this thread's default device.
class DeviceScope {
 public:
  [[nodiscard]] explicit DeviceScope(Device device) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device previous_;
};

/// Number of threads that CPU kernels of this thread may use; results do not depend on it (same
/// bits). The default is FIRN_THREADS, else the number of CPUs that the process may run on. If the
/// variable is not a number of 1 or more, the first allocation throws Error.
int num_threads() noexcept;

/// Sets the number of CPU threads for the process. Throws Error if n < 1.
void set_num_threads(int n);

/// While alive, CPU kernels that this thread calls use at most `n` threads.
class NumThreadsScope {
 public:
  /// Throws Error if n < 1.
  [[nodiscard]] explicit NumThreadsScope(int n);
  ~NumThreadsScope();
  NumThreadsScope(const NumThreadsScope&) = delete;
  NumThreadsScope& operator=(const NumThreadsScope&) = delete;

 private:
  int previous_;
};

}  // namespace firn
