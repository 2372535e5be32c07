// A model of a device's allocator. It answers requests as the allocator would, and keeps the same
// accounts, but its blocks take no memory. They are address space that reads as zeros. Where the
// system counts address space, larger blocks are numbers that are not addresses.
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

/// No program has addresses from here on: a block that begins there is not memory.
inline constexpr std::uintptr_t kNoAddress = std::uintptr_t{1} << 60;
/// Returns true if a block of a plan begins at `data` that is not memory: reading from it or
/// writing to it would end the program.
bool is_made_up(const void* data) noexcept;
/// Returns true if a mapping that is never written to counts: a limit of address space (ulimit -v)
/// is set, or the system promises no more memory than it has.
bool counts_address_space() noexcept;

/// Blocks that outlive the dry run keep the model alive.
class Model final : public RefCounted, public BlockSource {
 public:
  /// Makes a model in the present state of the allocator; peaks begin at what is in use. Throws
  /// OutOfMemory.
  static Ref<Model> of(Device device);
  static void destroy(Model* model) noexcept { delete model; }
  /// Returns the model that this thread's allocations on `device` go to, or null.
  static Model* current(Device device) noexcept;
  /// Sets the current model, and returns the previous one.
  static Model* exchange_current(Device device, Model* model) noexcept;

  Device device() const noexcept { return device_; }
  /// Throws what the allocator would throw.
  void allocate(MemoryBlock& b);
  void give_back(MemoryBlock& b) noexcept override;
  /// Notes that a real block of this device is about to be released.
  void lost(const MemoryBlock& b) noexcept;
  MemoryReport report();
  void release_cached() noexcept;

  // Functions for begin_model().
  void begin_as(const Accounts& accounts) noexcept { accounts_->begin_as(accounts); }
  void add_free(void* stream, const FreeLists& lists);

 private:
  explicit Model(Device device);
  ~Model();
  using Free = std::map<std::pair<void*, std::size_t>, std::size_t>;
  void drop_cached() noexcept;
  void put_back(const MemoryBlock& b) noexcept;
  /// Returns the address of `size` bytes.
  void* address(std::size_t size);
  /// Returns the address of mapped space, or null if there is none.
  void* mapped(std::size_t size) noexcept;

  const Device device_;
  std::mutex mutex_;
  std::unique_ptr<Accounts> accounts_;
  Free free_;  ///< numbers of free blocks by stream and size
  std::vector<std::pair<char*, std::size_t>> spaces_;  ///< mapped, the last one in use
  std::size_t used_ = 0;                               ///< bytes used of the last space
  std::size_t made_up_ = 0;                            ///< bytes that have numbers alone
  const bool counted_;                                 ///< true if the system counts address space
};

}  // namespace firn::memory
