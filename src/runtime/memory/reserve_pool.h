// The memory behind a MemoryReserve (firn/memory/reserve.h).
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "firn/device.h"
#include "firn/memory/block.h"
#include "firn/ref.h"
#include "runtime/memory/block_source.h"

namespace firn::memory {

/// Serves requests from one range of addresses, each at the lowest place with room. Blocks that
/// outlive the reserve keep it alive.
class ReservePool final : public RefCounted, public BlockSource {
 public:
  /// Makes a pool that measures, in dry runs: its addresses take no memory, as those of a Model.
  explicit ReservePool(Device device);
  /// Takes `bytes` bytes from the device's allocator.
  ReservePool(Device device, std::size_t bytes, Owner owner);
  static void destroy(ReservePool* pool) noexcept { delete pool; }

  /// Returns the pool that this thread's allocations go to, or null.
  static ReservePool* current() noexcept;
  static ReservePool* exchange_current(ReservePool* next) noexcept;

  Device device() const noexcept { return device_; }
  /// Returns false if there is no room.
  bool serve(MemoryBlock& b);
  void give_back(MemoryBlock& b) noexcept override;
  /// Returns the end of the highest place that was in use so far.
  std::size_t most() const noexcept { return most_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  ~ReservePool();
  struct Place {
    std::size_t begin, end;
  };

  const Device device_;
  std::mutex mutex_;
  MemoryBlock block_;  ///< empty if this pool measures
  char* base_ = nullptr;
  std::size_t bytes_ = 0;  ///< size of the range that begins at base_
  std::size_t most_ = 0;
  std::vector<Place> used_;  ///< places in use, by address
};

}  // namespace firn::memory
