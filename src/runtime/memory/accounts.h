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

/// Log of the blocks that are released while it is set.
struct TimelineLog {
  struct Ended {
    std::uint64_t born, died;
    std::size_t bytes;
    Owner owner;
    std::uint32_t module;
    const char* op;
  };
  std::vector<Ended> ended;
  bool incomplete = false;  ///< true if the heap had no memory to note a block
};

/// The allocator's mutex guards it.
class Accounts {
 public:
  explicit constexpr Accounts(Device device) noexcept : device_(device) {}
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;

  /// Makes `b` a block of `size` bytes at `data`, with the labels of this thread.
  void allocated(MemoryBlock& b, void* data, std::size_t size) noexcept;
  /// Notes that `b` has no block any more.
  void released(MemoryBlock& b) noexcept;

  void taken_from_system(std::size_t size) noexcept;
  void given_to_system(std::size_t size) noexcept { stats_.reserved -= size; }
  /// Returns true if the limit lets the allocator take `size` more bytes from the system. The first
  /// call reads the limit of the environment, and throws as initial_limit() does. On the CPU each
  /// call looks at the process's control groups, unless a limit was set.
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
  /// Number of events so far.
  std::uint64_t clock() const noexcept { return clock_; }
  /// Returns the blocks in use as entries of a log that have not died.
  std::vector<TimelineLog::Ended> in_use() const;

  /// Makes these accounts equal to `from`, without its blocks and log; peaks begin now. This is for
  /// a model of an allocator.
  void begin_as(const Accounts& from) noexcept;
  /// Notes the release of a block that these accounts have counted since begin_as(), but do not
  /// list.
  void released_elsewhere(const MemoryBlock& b) noexcept;

 private:
  using Modules = std::array<BytesByOwner, runtime::kMaxModules>;

  void add(const MemoryBlock& b, std::size_t size) noexcept;
  void subtract(const MemoryBlock& b) noexcept;
  void read_limit();
  /// Notes who has the bytes at the peak, before they fall from it.
  void keep_peak() noexcept;
  BytesByOwner by_owner() const noexcept;

  Device device_;
  MemoryStats stats_;
  bool limit_known_ = false;
  std::size_t own_limit_ = 0;                ///< limit of the environment; 0: none
  GroupLimits* groups_ = nullptr;            ///< control groups of the process; null if none counts
  bool below_peak_ = false;                  ///< true if the bytes in use are below the peak
  const MemoryBlock* peak_block_ = nullptr;  ///< block whose allocation made the peak, while in use
  const char* peak_op_ = nullptr;            ///< the block's operation, afterwards
  MemoryBlock* first_ = nullptr;
  std::uint64_t clock_ = 0;
  TimelineLog* timeline_ = nullptr;
  Modules modules_{}, modules_at_peak_{};
};

}  // namespace firn::memory
