// A block of memory that tensors share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "firn/device.h"
#include "firn/memory.h"
#include "firn/memory/block.h"
#include "firn/ref.h"
#include "firn/runtime/stream.h"

namespace firn {

class Storage;

/// Gives storages their memory when it is needed (Storage::set_provider()).
class StorageProvider {
 public:
  /// Calls storage.come(), or throws.
  virtual void fetch(Storage& storage) = 0;

 protected:
  ~StorageProvider() = default;
};

/// A reference-counted block on one device, 64-byte aligned, from the caching allocator. It holds
/// the version counter that all views of it share.
class Storage : public RefCounted {
 public:
  /// Uninitialised memory. Throws OutOfMemory, or DeviceError if this process cannot use the
  /// device.
  static Ref<Storage> allocate(std::size_t bytes, Device device,
                               Owner owner = OwnerScope::current());
  /// Memory that the caller owns and keeps alive longer than the storage.
  static Ref<Storage> borrow(void* data, std::size_t bytes, Device device);
  /// Memory that the storage owns from now on: the last reference calls `release(handle, bytes)`.
  /// The handle is `data` if it is null. The memory is not counted in memory_stats(). If this
  /// throws, it is still the caller's.
  static Ref<Storage> adopt(void* data, std::size_t bytes, Device device,
                            void (*release)(void* handle, std::size_t bytes) noexcept,
                            void* handle = nullptr);
  /// `bytes` bytes of `block`, from byte `offset` on, with a version counter of their own. The
  /// block lives as long as its parts. Throws Error if they lie outside the block.
  static Ref<Storage> part_of(Ref<Storage> block, std::size_t offset, std::size_t bytes);
  /// Moves this storage into `block`, at byte `offset`. The bytes are copied, every view of this
  /// storage sees the new place, and the old memory is released. Throws Error, before anything has
  /// changed, if the block has no room there or if the place is held.
  void move_into(Ref<Storage> block, std::size_t offset);

  // Memory whose address is known outside of firn.

  /// Counts the users of the memory's address, from any thread. While the place is held,
  /// move_into() throws, and set_provider() may not be called.
  void hold_place() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_place_go() noexcept { holders_.fetch_sub(1, std::memory_order_release); }
  /// True if hold_place() was called more often than let_place_go().
  bool place_is_held() const noexcept { return holders_.load(std::memory_order_acquire) > 0; }

  // Memory that comes and goes, while its tensors stay.

  /// Releases the memory. From now on fetch() gets it from `provider`; with null, it throws Error.
  void set_provider(StorageProvider* provider) noexcept;
  /// Uses the memory of `block`, from byte `offset` on, until go() is called. The block must have
  /// room.
  void come(Ref<Storage> block, std::size_t offset) noexcept;
  void go() noexcept;
  /// True if there is no memory now: fetch() asks for it, and throws if it cannot get it.
  bool is_absent() const noexcept { return absent_; }
  /// True if the memory comes and goes.
  bool is_provided() const noexcept { return provider_ || absent_; }
  /// Asks the provider for the memory. Throws Error if there is none, and what it throws.
  void fetch();

  /// Called by the last Ref to the storage.
  static void destroy(Storage* s) noexcept;
  /// Notes that work queued on `stream` so far uses this memory. Call it if the memory was
  /// allocated on another stream: it is then reused only after that work is done.
  void record_use(Stream stream);

  /// Returns the first byte, or null if the storage is empty or its memory is away.
  void* data() const noexcept { return data_; }
  /// Returns the size in bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Device of the memory.
  Device device() const noexcept { return device_; }
  /// Owner that the memory counts for.
  Owner owner() const noexcept { return owner_; }

  /// Notes, for reports, that `op` has made the contents. The first call counts.
  void made_by(const char* op) noexcept { memory_.made_by(op); }

  /// Labels::segment when the memory was allocated; 0 for memory from elsewhere.
  std::uint64_t segment() const noexcept { return segment_; }
  /// Notes that an operation needs the present values in its backward pass, though it does not hold
  /// them. `number`, which is not 0, identifies these values.
  void mark_saved(std::uint64_t number) noexcept { saved_as_ = number; }
  /// The number of the last mark_saved(); 0 without one.
  std::uint64_t saved_as() const noexcept { return saved_as_; }

  /// Number of in-place writes; a tensor saved for backward remembers the number it was saved at.
  /// Writes of a plan (firn/memory/plan.h) count within that plan alone: it has written nothing.
  std::uint32_t version() const noexcept {
    return version_ + (planned_.writes == 0 ? 0 : writes_of_plan());
  }
  /// The op that wrote last, for the error message.
  const char* last_writer() const noexcept;
  /// Counts an in-place write by `op`, a string literal.
  void bump_version(const char* op) noexcept;
  /// True if a plan has made it: it ends with the plan.
  bool is_of_plan() const noexcept { return of_plan_; }

 private:
  Storage() = default;
  ~Storage() = default;
  /// Gives the memory back to its source.
  void give_back() noexcept;
  /// The number of writes that the plan of this thread has noted.
  std::uint32_t writes_of_plan() const noexcept;

  /// Writes that a plan has counted.
  struct PlannedWrites {
    std::uint32_t plan = 0;  ///< number of the plan
    std::uint32_t writes = 0;
    const char* last_writer = "";
  };

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  const char* last_writer_ = "";
  std::uint32_t version_ = 0;
  PlannedWrites planned_;
  Device device_;
  Owner owner_ = Owner::activations;
  std::uint64_t segment_ = 0, saved_as_ = 0;
  MemoryBlock memory_;  ///< memory from firn's allocator; or none
  void (*release_)(void*, std::size_t) noexcept = nullptr;  ///< releases memory that was adopted
  void* handle_ = nullptr;                                  ///< argument of release_
  Ref<Storage> block_;  ///< the block that this storage is a part of, if it is one
  StorageProvider* provider_ = nullptr;
  std::atomic<std::uint32_t> holders_{0};
  bool absent_ = false;
  bool of_plan_ = false;
};

}  // namespace firn
