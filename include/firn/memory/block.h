// A block of memory from the caching allocator, with what reports say of it. Storage and Workspace
// hold one; tensors and kernels use those.
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

/// Owns one block, or none. Allocators list every block by address of this object, so it cannot be
/// copied or moved.
class MemoryBlock {
 public:
  MemoryBlock() noexcept = default;
  ~MemoryBlock() { release(); }
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  /// Takes `bytes` uninitialised bytes, aligned to 64 (256 on CUDA devices), on the device's
  /// current stream. Only for an object without a block. Throws OutOfMemory.
  void allocate(std::size_t bytes, Device device, Owner owner);
  /// The same on a given stream.
  void allocate(std::size_t bytes, Stream stream, Owner owner);
  /// Gives the block back.
  void release() noexcept;

  void* data() const noexcept { return data_; }  ///< null: no block
  /// Its size.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Where it is.
  Device device() const noexcept { return device_; }
  /// What it counts for.
  Owner owner() const noexcept { return owner_; }
  /// Whether it is no block of the device's allocator: of a dry run, or a part of a MemoryReserve.
  bool lent() const noexcept { return source_ != nullptr; }
  /// The operation that made it, for reports; null if that is not known.
  const char* op() const noexcept { return op_.load(std::memory_order_relaxed); }
  /// The first operation that says so made it. `op` is a string literal.
  void made_by(const char* op) noexcept {
    if (!this->op()) op_.store(op, std::memory_order_relaxed);
  }

 private:
  friend class memory::Accounts;
  friend class memory::BlockSource;

  void* data_ = nullptr;
  std::size_t bytes_ = 0;                  ///< asked for
  std::size_t size_ = 0;                   ///< that it occupies
  MemoryBlock* next_ = nullptr;            ///< in the list of blocks in use
  MemoryBlock** link_ = nullptr;           ///< what points at this one in that list
  std::uint64_t born_ = 0;                 ///< by the clock of the accounts
  void* stream_ = nullptr;                 ///< handle of the stream that it was taken on
  memory::BlockSource* source_ = nullptr;  ///< not the device's allocator: a plan or a reserve
  std::atomic<const char*> op_{nullptr};
  std::uint32_t module_ = 0;
  Device device_;
  Owner owner_ = Owner::activations;
};

}  // namespace firn
