// Memory by module and operation, and the lifetimes of blocks within a step.
//
//   MemoryTimeline timeline;
//   opt.backward(cross_entropy(net(x), y));
//   opt.step();
//   fmt::print("{}", memory_report().table());
//   save_text("step.json", timeline.json());
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "firn/memory.h"

namespace firn {

/// A block that is or was in use.
struct BlockReport {
  std::size_t bytes = 0;             ///< bytes that the block occupies
  Owner owner = Owner::activations;  ///< owner that the bytes count for
  std::string module;  ///< path of the innermost module whose call made it; empty: none
  std::string op;      ///< the operation that made it, or "empty" if none was noted
};

/// Result of memory_report() for one device.
struct MemoryReport {
  /// Paths begin with the type of the outermost module that was called: "GPT.blocks.0.attention".
  /// Memory of a backward pass counts for the module whose forward pass recorded the operation.
  struct Module {
    std::string path;  ///< empty: outside of the calls of modules, such as parameters
    /// Bytes in use by owner: now, and when the total was at its peak.
    BytesByOwner now{}, at_peak{};
  };

  Device device;                ///< the device that the report is about
  MemoryStats stats;            ///< bytes by owner
  std::string peak_op;          ///< the operation during which `stats.total` reached its peak
  std::vector<Module> modules;  ///< all with bytes now or at the peak; they add up to the totals
  std::vector<BlockReport> largest;  ///< the five largest blocks in use, largest first
  /// Requested bytes of all blocks in use, before sizes were rounded up.
  std::size_t requested = 0;

  /// Bytes in use beyond those requested, since sizes are rounded up.
  std::size_t rounding() const noexcept { return stats.total.current - requested; }
  /// Bytes from the system in blocks that are free.
  std::size_t cached() const noexcept { return stats.reserved - stats.total.current; }
  /// Owners, modules and the largest blocks, for people.
  std::string table() const;
  /// The report as one JSON object, with all numbers in bytes.
  std::string json() const;
};

/// Reports the memory of a device. Visits every block in use once, and waits for nothing.
MemoryReport memory_report(Device device = default_device());

/// While alive, records the blocks that are allocated on a device, by any thread. Times count
/// allocations and releases.
class MemoryTimeline {
 public:
  /// Throws Error if the device has a timeline already.
  explicit MemoryTimeline(Device device = default_device());
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;

  /// A block of memory, and when it was in use.
  struct Block : BlockReport {
    std::uint64_t born = 0;  ///< event of the allocation, from 1 on; 0: before the timeline
    std::uint64_t died = 0;  ///< event of the release; 0: still in use
  };
  /// Returns the blocks in the order of their release; those in use come last. Throws OutOfMemory
  /// if the timeline had no memory to record a release.
  std::vector<Block> blocks() const;
  /// Bytes in use after each event; event 0 is the start of the timeline.
  std::vector<std::size_t> totals() const;
  /// {"device": ..., "blocks": [{"born", "died", "bytes", "owner", "module", "op"}, ...]}
  std::string json() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< held by this object alone
};

}  // namespace firn
