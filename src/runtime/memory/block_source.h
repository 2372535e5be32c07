// What serves a block of memory in place of the device's allocator: the model of an allocator in a
// dry run (plan/model.h), or memory that was reserved (reserve_pool.h).
#pragma once

#include <cstddef>

#include "firn/memory/block.h"

namespace firn::memory {

/// Its blocks find their way back to it.
class BlockSource {
 public:
  /// `b` has no use for its block any more.
  virtual void give_back(MemoryBlock& b) noexcept = 0;

 protected:
  ~BlockSource() = default;

  /// `b` comes from this source from now on, or from none (null).
  static void set_source(MemoryBlock& b, BlockSource* source) noexcept { b.source_ = source; }
  static void set_data(MemoryBlock& b, void* data) noexcept { b.data_ = data; }
  static void* stream_of(const MemoryBlock& b) noexcept { return b.stream_; }
  /// The bytes that the accounts count for it.
  static std::size_t size_of_block(const MemoryBlock& b) noexcept { return b.size_; }
};

}  // namespace firn::memory
