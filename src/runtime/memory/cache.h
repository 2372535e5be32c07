// Shared by the caching allocators of all devices: lists of free blocks by size.
#pragma once

#include <bit>
#include <cstddef>

namespace firn::memory {

inline constexpr std::size_t kAlignment = 64;

/// Returns true if FailAllocation (fail_allocation.h) makes this allocation fail.
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
  /// Takes the block that was pushed last among those of exactly `size` bytes, or returns null.
  FreeBlock* pop(std::size_t size) noexcept {
    for (FreeBlock** at = &first_; *at; at = &(*at)->next) {
      FreeBlock* block = *at;
      if (block->size != size) continue;
      *at = block->next;
      return block;
    }
    return nullptr;
  }
  template <class Look>
  void each(Look&& look) const {
    for (const FreeBlock* block = first_; block; block = block->next) look(block->size);
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
  /// Calls look(size) for every block.
  template <class Look>
  void each(Look&& look) const {
    for (const FreeList& list : lists_) list.each(look);
  }
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

}  // namespace firn::memory
