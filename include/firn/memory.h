// Memory accounting: who holds how much, and what the peak was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "firn/device.h"

namespace firn {

/// What a block of memory is for.
enum class Owner : std::uint8_t { weights, gradients, optimizer, activations, workspace, data };
inline constexpr int kOwnerCount = 6;
const char* to_string(Owner owner) noexcept;

/// Bytes per owner and in all. `reserved` counts what the caching allocator holds from the system,
/// in use or cached for the next allocation.
struct MemoryStats {
  struct Count {
    std::size_t current = 0;
    std::size_t peak = 0;
  };
  std::array<Count, kOwnerCount> by_owner;
  Count total;
  std::size_t reserved = 0;
  std::uint64_t allocations = 0;         ///< requests served since the start
  std::uint64_t system_allocations = 0;  ///< those that had to go to the system

  const Count& of(Owner o) const noexcept { return by_owner[static_cast<int>(o)]; }
};

MemoryStats memory_stats(Device device = default_device());
/// Sets every peak to the current value.
void reset_peak_memory(Device device = default_device());
/// Gives cached blocks that nobody uses back to the system. On a CUDA device it waits for the
/// streams that used them; what graphs hold stays.
void release_cached_memory(Device device = default_device());

/// While alive, memory allocated by this thread is accounted to `owner`. Default: activations.
class OwnerScope {
 public:
  explicit OwnerScope(Owner owner) noexcept;
  ~OwnerScope();
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;
  static Owner current() noexcept;

 private:
  Owner previous_;
};

/// Memory of the host that devices can copy from and to on their own (page-locked), zeroed. It must
/// outlive what copy_bytes_async() does with it. Ordinary memory where there is no CUDA device.
class PinnedMemory {
 public:
  /// Throws OutOfMemory.
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// For tests of failure handling: while alive, the k-th allocation from now on (0 is the next one)
/// throws OutOfMemory, and so do all after it when `sticky`.
class FailAllocation {
 public:
  explicit FailAllocation(std::uint64_t k, bool sticky = false) noexcept;
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
};

}  // namespace firn
