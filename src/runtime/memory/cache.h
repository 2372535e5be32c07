// What the caching allocators of all devices have in common: lists of free blocks by size, and the
// accounts of who holds how much.
#pragma once

#include <cstddef>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "firn/device.h"
#include "firn/memory.h"

namespace firn::memory {

inline constexpr std::size_t kAlignment = 64;

/// Whether the allocation at hand is the one that FailAllocation wants to fail.
bool injected_failure() noexcept;

/// Blocks that wait for the next request of their size.
class FreeLists {
 public:
  void push(void* block, std::size_t size) { list_of(size).push_back(block); }
  /// Null where there is none.
  void* pop(std::size_t size) noexcept {
    std::vector<void*>* list = nullptr;
    if (is_small(size)) {
      list = &small_[size / kAlignment];
    } else {
      const auto it = large_.find(size);
      if (it == large_.end()) return nullptr;
      list = &it->second;
    }
    if (list->empty()) return nullptr;
    void* block = list->back();
    list->pop_back();
    return block;
  }
  /// Calls take(block, size) for every block, and forgets them.
  template <class Take>
  void drain(Take&& take) {
    const auto drain_list = [&](std::size_t size, std::vector<void*>& list) {
      for (void* block : list) take(block, size);
      list.clear();
    };
    for (std::size_t i = 0; i < std::size(small_); ++i) drain_list(i * kAlignment, small_[i]);
    for (auto& [size, list] : large_) drain_list(size, list);
  }

 private:
  static constexpr std::size_t kSmallLimit = 4096;
  static bool is_small(std::size_t size) noexcept {
    return size <= kSmallLimit && size % kAlignment == 0;
  }

  std::vector<void*>& list_of(std::size_t size) {
    return is_small(size) ? small_[size / kAlignment] : large_[size];
  }

  std::vector<void*> small_[kSmallLimit / kAlignment + 1];
  std::unordered_map<std::size_t, std::vector<void*>> large_;
};

/// Counts of one device. Guarded by the allocator's mutex.
class Accounts {
 public:
  explicit Accounts(Device device) noexcept : device_(device) {}

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
