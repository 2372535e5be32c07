// Devices, and how many CPU threads kernels use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace firn {

enum class DeviceType : std::uint8_t { cpu, cuda };

/// Where a tensor lives. `Device()` is the CPU, but `{}` is not a device: an argument that is left
/// out must not mean the CPU where default_device() is another.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int8_t index = 0;

  constexpr explicit Device() noexcept = default;
  constexpr Device(DeviceType kind, int number = 0) noexcept
      : type(kind), index(static_cast<std::int8_t>(number)) {}

  static constexpr Device cpu() noexcept { return Device(); }
  static constexpr Device cuda(int index = 0) noexcept { return {DeviceType::cuda, index}; }
  /// From "cpu", "cuda" or "cuda:1". Throws Error on anything else.
  static Device parse(std::string_view text);

  constexpr bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const noexcept { return type == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const noexcept = default;
};

/// "cpu" or "cuda:0".
std::string to_string(Device device);

/// Where this thread makes tensors and modules that name no device: the CPU, or what DeviceScope
/// says.
Device default_device() noexcept;

/// While alive, that is `device` for this thread.
class DeviceScope {
 public:
  explicit DeviceScope(Device device) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device previous_;
};

/// Number of threads that CPU kernels may use; results do not depend on it (same bits). At first:
/// the CPUs that the process may run on.
int num_threads() noexcept;

/// Sets that number for the process. Throws Error where n < 1.
void set_num_threads(int n);

}  // namespace firn
