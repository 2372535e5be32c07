// Memory accounting: bytes by purpose, their peaks, and a limit. memory/report.h counts bytes by
// module and operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "firn/device.h"

namespace firn {

/// Purpose of a block of memory.
enum class Owner : std::uint8_t {
  weights,      ///< parameters and buffers of models, in the model's dtype
  masters,      ///< f32 copies of f16 and bf16 parameters
  gradients,    ///< gradients of parameters, and intermediate ones of a backward pass
  optimizer,    ///< moments, averages, and state of steps and loss scales
  activations,  ///< results of operations, and tensors that they save for the backward pass
  recomputed,   ///< activations that a backward pass computes again
  workspace,    ///< scratch memory of kernels
  data,         ///< batches that loaders make
};
inline constexpr int kOwnerCount = 8;  ///< the number of owners
/// Name of the owner; "unknown owner" for a value outside of the enum.
const char* to_string(Owner owner) noexcept;

/// Bytes of each owner.
using BytesByOwner = std::array<std::size_t, kOwnerCount>;

/// Bytes per owner and in total. `reserved` counts the bytes that the caching allocator has taken
/// from the system: blocks in use and cached blocks.
struct MemoryStats {
  /// A number of bytes, and its peak.
  struct Count {
    std::size_t current = 0;  ///< bytes in use
    std::size_t peak = 0;     ///< the most since the start, or since reset_peak_memory()
  };
  std::array<Count, kOwnerCount> by_owner;  ///< each peak is the owner's own
  Count total;                              ///< sum over all owners
  BytesByOwner at_peak{};                   ///< when `total` was at its peak; they add up to it
  std::size_t reserved = 0;                 ///< bytes that the caching allocator holds
  std::size_t reserved_peak = 0;            ///< peak of `reserved`
  std::size_t limit = 0;                    ///< limit of `reserved` (set_memory_limit()); 0: none
  std::uint64_t allocations = 0;            ///< requests served since the start
  std::uint64_t system_allocations = 0;     ///< requests that the cache could not serve

  /// The bytes of one owner.
  const Count& of(Owner o) const noexcept { return by_owner[static_cast<int>(o)]; }
};

/// Returns the bytes that firn has allocated on a device.
MemoryStats memory_stats(Device device = default_device());
/// Sets every peak to the current value.
void reset_peak_memory(Device device = default_device());
/// Returns unused cached blocks to the system. On a CUDA device it first waits for the streams that
/// used them. Graphs keep their blocks, and nothing is freed while any thread captures a graph.
void release_cached_memory(Device device = default_device());

/// Limits the bytes that the allocator of `device` holds from the system; 0: no limit. At the limit
/// it first returns cached blocks, then throws OutOfMemory. Memory that it holds already stays.
///
/// The limit at the start is FIRN_MEMORY_LIMIT, for example "512MiB", for each device. On the CPU
/// the control groups (cgroups) of the process limit it as well, until this is called. They allow
/// the bytes that the program, its heap and other processes leave. The allocator looks that up
/// whenever it asks the system, so `limit` in memory_stats() is as of then. The first allocation
/// throws Error if FIRN_MEMORY_LIMIT is not a size, or FIRN_THREADS not a number.
void set_memory_limit(std::size_t bytes, Device device = default_device());

/// Parses a number of bytes: "512MiB", "1.5 GiB", "64KiB", "1e9" or "4096". It takes a number of 0
/// or more, and B, KiB, MiB, GiB, TiB, KB, MB, GB, TB or nothing. Throws Error for anything else.
std::size_t parse_bytes(std::string_view text);
/// Formats a number of bytes: "30.5 MiB", "4 KiB", "17 B". It prints at most one decimal.
std::string bytes_to_string(std::size_t bytes);

/// While alive, memory that this thread allocates is counted for `owner`. Default: activations.
class OwnerScope {
 public:
  /// Throws Error for a value outside of the enum.
  [[nodiscard]] explicit OwnerScope(Owner owner);
  ~OwnerScope();
  OwnerScope(const OwnerScope&) = delete;
  OwnerScope& operator=(const OwnerScope&) = delete;
  /// The owner that this thread's allocations count for.
  static Owner current() noexcept;

 private:
  Owner previous_;
};

/// Zeroed, page-locked host memory, for copies to and from devices that the host need not wait for.
/// It must outlive copies that copy_bytes_async() has queued. Without a CUDA device it is ordinary
/// memory.
class PinnedMemory {
 public:
  /// Throws OutOfMemory.
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  /// Address of the first byte; null if it is empty.
  void* data() const noexcept { return data_; }
  /// Size in bytes.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace firn
