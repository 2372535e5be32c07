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
  /// To measure: addresses that take no memory, as those of a Model. For dry runs.
  explicit ReservePool(Device device);
  /// `bytes` bytes from the device's allocator.
  ReservePool(Device device, std::size_t bytes, Owner owner);
  static void destroy(ReservePool* pool) noexcept { delete pool; }

  /// The one that this thread's allocations go to; null: none.
  static ReservePool* current() noexcept;
  static ReservePool* exchange_current(ReservePool* pool) noexcept;

  Device device() const noexcept { return device_; }
  /// False if there is no room.
  bool serve(MemoryBlock& b);
  void give_back(MemoryBlock& b) noexcept override;
  /// The end of the highest place that was in use so far.
  std::size_t most() const noexcept { return most_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  ~ReservePool();
  struct Place {
    std::size_t begin, end;
  };

  const Device device_;
  std::mutex mutex_;
  MemoryBlock block_;  ///< none if this one measures
  char* base_ = nullptr;
  std::size_t bytes_ = 0;  ///< from base_ on
  std::size_t most_ = 0;
  std::vector<Place> used_;  ///< by address
};

}  // namespace firn::memory
