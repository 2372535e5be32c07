// Shared by the caching allocators of all devices: lists of free blocks by size, and counts of the
// memory of each owner.
#pragma once

#include <bit>
#include <cstddef>

#include "firn/device.h"
#include "firn/memory.h"

namespace firn::memory {

inline constexpr std::size_t kAlignment = 64;

/// Whether FailAllocation (fail_allocation.h) makes this allocation fail.
bool injected_failure() noexcept;

/// A released block, or its entry in a list if the host cannot write to the block itself.
struct FreeBlock {
  FreeBlock* next;
  std::size_t size;
};

/// A stack of released blocks. The blocks carry the links, so that releasing never needs memory.
class FreeList {
 public:
  bool empty() const noexcept { return !first_; }
  void push(FreeBlock* block) noexcept {
    block->next = first_;
    first_ = block;
  }
  FreeBlock* pop() noexcept {
    FreeBlock* block = first_;
    if (block) first_ = block->next;
    return block;
  }
  /// The block that was pushed last among those of exactly `size` bytes, or null.
  FreeBlock* pop(std::size_t size) noexcept {
    for (FreeBlock** at = &first_; *at; at = &(*at)->next) {
      FreeBlock* block = *at;
      if (block->size != size) continue;
      *at = block->next;
      return block;
    }
    return nullptr;
  }

 private:
  FreeBlock* first_ = nullptr;
};

/// Released blocks, kept for the next request of their size: a list for every size that
/// block_size() returns, eight per power of two.
class FreeLists {
 public:
  void push(FreeBlock* block) noexcept { lists_[index_of(block->size)].push(block); }
  /// Returns null if there is none. Blocks of a list usually have one size, so the first one fits.
  FreeBlock* pop(std::size_t size) noexcept { return lists_[index_of(size)].pop(size); }
  /// Calls take(block) for every block and empties the lists.
  template <class Take>
  void drain(Take&& take) {
    for (FreeList& list : lists_)
      while (FreeBlock* block = list.pop()) take(block);
  }

 private:
  static constexpr int kSizes = 8 * 64;
  /// Below 512 bytes the sizes are multiples of 64, numbers 0 to 7. Then there are eight numbers
  /// for each power of two.
  static int index_of(std::size_t size) noexcept {
    if (size < 8 * kAlignment) return static_cast<int>(size / kAlignment);
    const int power = std::bit_width(size) - 1;  // 9 or more
    return 8 * (power - 8) + static_cast<int>(size >> (power - 3) & 7);
  }

  FreeList lists_[kSizes] = {};
};

/// Counts of one device. Guarded by the allocator's mutex.
class Accounts {
 public:
  explicit constexpr Accounts(Device device) noexcept : device_(device) {}

  void allocated(std::size_t size, Owner owner) noexcept {
    ++stats_.allocations;
    add(stats_.by_owner[static_cast<int>(owner)], size);
    add(stats_.total, size);
  }
  void released(std::size_t size, Owner owner) noexcept {
    stats_.by_owner[static_cast<int>(owner)].current -= size;
    stats_.total.current -= size;
  }
  void taken_from_system(std::size_t size) noexcept {
    stats_.reserved += size;
    ++stats_.system_allocations;
  }
  void given_to_system(std::size_t size) noexcept { stats_.reserved -= size; }
  void reset_peak() noexcept {
    for (auto& c : stats_.by_owner) c.peak = c.current;
    stats_.total.peak = stats_.total.current;
  }
  const MemoryStats& stats() const noexcept { return stats_; }
  /// Throws OutOfMemory with the figures.
  [[noreturn]] void fail(std::size_t bytes, const char* why) const;

 private:
  static void add(MemoryStats::Count& c, std::size_t size) noexcept {
    c.current += size;
    if (c.current > c.peak) c.peak = c.current;
  }

  Device device_;
  MemoryStats stats_;
};

}  // namespace firn::memory
