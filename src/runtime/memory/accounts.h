// The accounts of one device: bytes by owner and by module, now and at the peak, the list of the
// blocks in use, and the limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "firn/device.h"
#include "firn/memory.h"
#include "firn/memory/block.h"
#include "firn/memory/labels.h"
#include "firn/memory/report.h"
#include "runtime/memory/limit.h"

namespace firn::memory {

/// Notes the blocks that end while it is there.
struct TimelineLog {
  struct Ended {
    std::uint64_t born, died;
    std::size_t bytes;
    Owner owner;
    std::uint32_t module;
    const char* op;
  };
  std::vector<Ended> ended;
  bool incomplete = false;  ///< the heap had no memory to note one
};

/// Guarded by the allocator's mutex.
class Accounts {
 public:
  explicit constexpr Accounts(Device device) noexcept : device_(device) {}
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;

  /// `b` becomes a block of `size` bytes at `data`, made by what this thread is doing.
  void allocated(MemoryBlock& b, void* data, std::size_t size) noexcept;
  /// `b` has no block any more.
  void released(MemoryBlock& b) noexcept;

  void taken_from_system(std::size_t size) noexcept;
  void given_to_system(std::size_t size) noexcept { stats_.reserved -= size; }
  /// Whether the limit lets the allocator take so much more from the system. The first call reads
  /// the limit of the environment, and throws as initial_limit() does. On the CPU each call looks
  /// at the process's control groups, unless a limit was set.
  bool may_take(std::size_t size);
  void set_limit(std::size_t bytes) noexcept;
  void reset_peak() noexcept;
  MemoryStats stats() const noexcept;
  MemoryReport report() const;
  /// Throws OutOfMemory with the figures, for a request of `bytes`.
  [[noreturn]] void fail(std::size_t bytes, const char* why) const;

  /// Begins or (null) ends a log. Returns false if there is one already.
  bool set_timeline(TimelineLog* log) noexcept;
  bool has_timeline() const noexcept { return timeline_ != nullptr; }
  /// Events so far.
  std::uint64_t clock() const noexcept { return clock_; }
  /// The blocks in use as entries of a log that have not died.
  std::vector<TimelineLog::Ended> in_use() const;

  /// These accounts begin as those of `from`, without its blocks and log; peaks begin now. For a
  /// model of an allocator.
  void begin_as(const Accounts& from) noexcept;
  /// A block that these accounts do not list, but have counted since begin_as(), was released.
  void released_elsewhere(const MemoryBlock& b) noexcept;

 private:
  using Modules = std::array<BytesByOwner, runtime::kMaxModules>;

  void add(const MemoryBlock& b, std::size_t size) noexcept;
  void subtract(const MemoryBlock& b) noexcept;
  void read_limit();
  /// Before the bytes fall from their peak: notes who has them.
  void keep_peak() noexcept;
  BytesByOwner by_owner() const noexcept;

  Device device_;
  MemoryStats stats_;
  bool limit_known_ = false;
  std::size_t own_limit_ = 0;                ///< that of the environment; 0: none
  GroupLimits* groups_ = nullptr;            ///< of the process; null: none count
  bool below_peak_ = false;                  ///< what is in use now is not the peak
  const MemoryBlock* peak_block_ = nullptr;  ///< whose allocation made the peak, while in use
  const char* peak_op_ = nullptr;            ///< its operation, afterwards
  MemoryBlock* first_ = nullptr;
  std::uint64_t clock_ = 0;
  TimelineLog* timeline_ = nullptr;
  Modules modules_{}, modules_at_peak_{};
};

}  // namespace firn::memory
