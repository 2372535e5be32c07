// Sources of memory blocks in place of the device's allocator: the model of an allocator in a dry
// run (plan/model.h), or memory that was reserved (reserve_pool.h).
#pragma once

#include <cstddef>

#include "firn/memory/block.h"

namespace firn::memory {

/// A source of blocks, to which its blocks return.
class BlockSource {
 public:
  /// Takes back the block of `b`.
  virtual void give_back(MemoryBlock& b) noexcept = 0;

 protected:
  ~BlockSource() = default;

  /// Sets the source of `b`; null: the device's allocator.
  static void set_source(MemoryBlock& b, BlockSource* source) noexcept { b.source_ = source; }
  static void set_data(MemoryBlock& b, void* data) noexcept { b.data_ = data; }
  static void* stream_of(const MemoryBlock& b) noexcept { return b.stream_; }
  /// Returns the bytes that the accounts count for the block.
  static std::size_t size_of_block(const MemoryBlock& b) noexcept { return b.size_; }
};

}  // namespace firn::memory
