// The allocator of a device as a model of itself: it answers requests as that would, and keeps the
// same accounts, but its blocks take no memory. They are address space that reads as zeros. Where
// the system counts address space, larger blocks are numbers that are no addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "firn/device.h"
#include "firn/memory/block.h"
#include "firn/ref.h"
#include "runtime/memory/accounts.h"
#include "runtime/memory/block_source.h"
#include "runtime/memory/cache.h"

namespace firn::memory {

/// No program has addresses from here on: what begins there is no memory.
inline constexpr std::uintptr_t kNoAddress = std::uintptr_t{1} << 60;
/// Whether a block of a plan begins there that is no memory: reading from it or writing to it would
/// end the program.
bool is_made_up(const void* data) noexcept;
/// Whether a mapping that is never written to counts: a limit of address space (ulimit -v) is set,
/// or the system promises no more memory than it has.
bool counts_address_space() noexcept;

/// Blocks that outlive the dry run keep it alive.
class Model final : public RefCounted, public BlockSource {
 public:
  /// Begins as the allocator of `device` is now; peaks begin at what is in use. Throws OutOfMemory.
  static Ref<Model> of(Device device);
  static void destroy(Model* model) noexcept { delete model; }
  /// The model that this thread's allocations on `device` go to; null: none.
  static Model* current(Device device) noexcept;
  /// From now on it is `model`. Returns the one before.
  static Model* exchange_current(Device device, Model* model) noexcept;

  Device device() const noexcept { return device_; }
  /// Throws as the allocator would.
  void allocate(MemoryBlock& b);
  void give_back(MemoryBlock& b) noexcept override;
  /// A real block of this device is about to be released.
  void lost(const MemoryBlock& b) noexcept;
  MemoryReport report();
  void release_cached() noexcept;

  // For begin_model():
  void begin_as(const Accounts& accounts) noexcept { accounts_->begin_as(accounts); }
  void add_free(void* stream, const FreeLists& lists);

 private:
  explicit Model(Device device);
  ~Model();
  using Free = std::map<std::pair<void*, std::size_t>, std::size_t>;
  void drop_cached() noexcept;
  void put_back(const MemoryBlock& b) noexcept;
  /// The begin of `size` bytes.
  void* address(std::size_t size);
  /// The same of mapped space; null if there is none.
  void* mapped(std::size_t size) noexcept;

  const Device device_;
  std::mutex mutex_;
  std::unique_ptr<Accounts> accounts_;
  Free free_;  ///< numbers of free blocks by stream and size
  std::vector<std::pair<char*, std::size_t>> spaces_;  ///< mapped, the last one in use
  std::size_t used_ = 0;                               ///< of the last space
  std::size_t made_up_ = 0;                            ///< bytes that have numbers alone
  const bool counted_;                                 ///< the system counts address space
};

}  // namespace firn::memory
