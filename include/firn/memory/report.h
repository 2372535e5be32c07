// Who uses the memory: bytes by module and operation, and how they came and went in a step.
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

/// A block in use, or one that was.
struct BlockReport {
  std::size_t bytes = 0;             ///< that it occupies
  Owner owner = Owner::activations;  ///< what it counts for
  std::string module;  ///< path of the innermost module whose call made it; empty: none
  std::string op;      ///< the operation that made it; "empty" if none has said so
};

/// What memory_report() has found on one device.
struct MemoryReport {
  /// Paths begin with the type of the outermost module that was called: "GPT.blocks.0.attention".
  /// What a backward pass allocates counts for the module whose forward pass it goes back through.
  struct Module {
    std::string path;  ///< empty: outside of the calls of modules, such as parameters
    /// Bytes in use by owner: now, and when the total was at its peak.
    BytesByOwner now{}, at_peak{};
  };

  Device device;                ///< of which device
  MemoryStats stats;            ///< bytes by owner
  std::string peak_op;          ///< the operation during which `stats.total` reached its peak
  std::vector<Module> modules;  ///< those with bytes now or at the peak; they add up to the totals
  std::vector<BlockReport> largest;  ///< the five largest blocks in use, largest first
  /// Bytes that were asked for, of all blocks in use: their sizes are rounded up by the rest.
  std::size_t requested = 0;

  /// Bytes in use that nobody asked for: sizes are rounded up.
  std::size_t rounding() const noexcept { return stats.total.current - requested; }
  /// Bytes from the system in blocks that are free.
  std::size_t cached() const noexcept { return stats.reserved - stats.total.current; }
  /// Owners, modules and the largest blocks, for people.
  std::string table() const;
  /// The same as one JSON object, with all numbers in bytes.
  std::string json() const;
};

/// Takes the time of one look at all blocks in use; waits for nothing.
MemoryReport memory_report(Device device = default_device());

/// While alive, notes the blocks that are allocated on a device, by any thread. Times are numbers
/// of allocations and releases.
class MemoryTimeline {
 public:
  /// Throws Error if the device has a timeline already.
  explicit MemoryTimeline(Device device = default_device());
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;

  /// A block of memory, and when it was in use.
  struct Block : BlockReport {
    std::uint64_t born = 0;  ///< 1 is the first event of the timeline; 0: there before it
    std::uint64_t died = 0;  ///< 0: still in use
  };
  /// In the order in which they ended; those in use come last. Throws OutOfMemory if the timeline
  /// had no memory to note an end.
  std::vector<Block> blocks() const;
  /// Bytes in use after each event, from event 0, the beginning, on.
  std::vector<std::size_t> totals() const;
  /// {"device": ..., "blocks": [{"born", "died", "bytes", "owner", "module", "op"}, ...]}
  std::string json() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn
