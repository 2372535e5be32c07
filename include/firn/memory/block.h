// A block of memory from the caching allocator, with the facts that reports show. Storage and
// Workspace hold one; tensors and kernels use those.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "firn/device.h"
#include "firn/memory.h"
#include "firn/runtime/stream.h"

namespace firn {

namespace memory {
class Accounts;
class BlockSource;
}  // namespace memory

/// Owns one block, or none. Allocators list every block by the address of this object, so it cannot
/// be copied or moved.
class MemoryBlock {
 public:
  MemoryBlock() noexcept = default;
  ~MemoryBlock() { release(); }
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  /// Takes `bytes` uninitialised bytes, aligned to 64 (256 on CUDA devices), on the device's
  /// current stream. Only for an object without a block. Throws OutOfMemory.
  void allocate(std::size_t bytes, Device device, Owner owner);
  /// Takes `bytes` uninitialised bytes on a given stream.
  void allocate(std::size_t bytes, Stream stream, Owner owner);
  /// Returns the block to its allocator.
  void release() noexcept;

  void* data() const noexcept { return data_; }  ///< null: no block
  /// Size in bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Device of the memory.
  Device device() const noexcept { return device_; }
  /// Owner that the bytes count for.
  Owner owner() const noexcept { return owner_; }
  /// True if the block comes from a dry run or a MemoryReserve, not from the device's allocator.
  bool borrowed() const noexcept { return source_ != nullptr; }
  /// The operation that made the block, for reports; null if unknown.
  const char* op() const noexcept { return op_.load(std::memory_order_relaxed); }
  /// Sets op() unless it is set already. `op` is a string literal.
  void made_by(const char* op) noexcept {
    if (!this->op()) op_.store(op, std::memory_order_relaxed);
  }

 private:
  friend class memory::Accounts;
  friend class memory::BlockSource;

  void* data_ = nullptr;
  std::size_t bytes_ = 0;                  ///< bytes that were requested
  std::size_t size_ = 0;                   ///< bytes that the block occupies
  MemoryBlock* next_ = nullptr;            ///< next in the list of blocks in use
  MemoryBlock** link_ = nullptr;           ///< the pointer to this block in that list
  std::uint64_t born_ = 0;                 ///< time of allocation by the clock of the accounts
  void* stream_ = nullptr;                 ///< handle of the stream that it was taken on
  memory::BlockSource* source_ = nullptr;  ///< a plan or a reserve; null: the device's allocator
  std::atomic<const char*> op_{nullptr};
  std::uint32_t module_ = 0;
  Device device_;
  Owner owner_ = Owner::activations;
};

}  // namespace firn
