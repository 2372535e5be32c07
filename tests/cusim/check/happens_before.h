// Which of a kernel's accesses happened before which: by barriers and __syncwarp() inside a block,
// by an atomic operation with fences around it between blocks. (The blocks run one after the other
// here, but a GPU runs them at once.)
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace cusim::check {

/// Who accessed a byte and when.
struct Stamp {
  std::uint32_t block;     ///< counted in the order of running
  std::uint16_t thread;    ///< in the block
  std::uint16_t barriers;  ///< that the block had passed
  std::uint16_t syncs;     ///< that the warp had passed
  bool operator==(const Stamp&) const = default;
};

class HappensBefore {
 public:
  void begin_launch();
  void begin_block(std::uint32_t threads);
  void after_barrier();
  void after_warp_sync(unsigned warp) { ++syncs_[warp]; }
  void after_fence(std::uint32_t thread);
  /// A read-modify-write of device memory.
  void after_atomic(const void* address, std::uint32_t thread);

  Stamp now(std::uint32_t thread) const {
    return {block_, static_cast<std::uint16_t>(thread), barriers_, syncs_[thread / 32]};
  }
  /// Whether what `before` did is visible to what `me` does.
  bool ordered(const Stamp& before, const Stamp& me) const;
  /// Whether everything that all blocks before this one released is visible to `me`.
  bool after_all_blocks(const Stamp& me) const;
  /// Whether this thread has had an atomic operation on the address in this block: it then comes
  /// after all those that went before.
  bool took_part(const void* address, const Stamp& me) const;

 private:
  /// What a block had done, and fenced, before an atomic operation of one of its threads.
  struct Release {
    std::uint16_t below;      ///< all threads: what they did before this many barriers
    std::uint16_t thread;     ///< the thread of the atomic operation
    std::uint16_t own_below;  ///< the same of that thread
  };
  using Releases = std::unordered_map<std::uint32_t, Release>;  // by block
  /// An atomic operation of this block, which sees what was released at its address before.
  struct Acquire {
    const void* address;
    const Releases* releases;
    std::uint16_t thread, barriers;
    std::uint32_t clock;
  };

  bool visible(const Acquire& acquire, const Stamp& me) const;

  std::uint32_t block_ = 0;
  std::uint32_t threads_ = 0;
  std::uint32_t clock_ = 0;  ///< counts the block's fences, barriers and atomic operations
  std::uint16_t barriers_ = 0;
  std::uint16_t syncs_[32] = {};
  std::uint32_t fence_clock_[1024] = {};     ///< of a thread's last fence; 0: none
  std::uint16_t fence_barriers_[1024] = {};  ///< barriers before it, plus 1
  std::uint32_t fences_ = 0;                 ///< threads with one since the last barrier
  std::uint16_t all_fenced_below_ = 0;
  std::vector<Acquire> acquires_;
  std::unordered_map<const void*, Releases> releases_;  // of the launch
};

}  // namespace cusim::check
