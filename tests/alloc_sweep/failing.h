// Makes an allocation of the program fail, whoever asks for it: firn, the standard library, oneDNN.
// Under sanitizers, which own malloc, `new` stands for the heap.
#pragma once

#include <cstdint>

namespace firn::testing {

/// Which allocations a FailingHeap counts, and how many of them fail.
struct HeapFailure {
  bool sticky = false;       ///< all after the failing one fail too
  bool covered_too = false;  ///< also those that a kernels::cpu::Reserve covers
  bool this_thread = false;  ///< only those of the thread that makes the FailingHeap
};

/// While alive, the k-th allocation from now on (0 is the next one) fails.
class FailingHeap {
 public:
  explicit FailingHeap(std::int64_t k, const HeapFailure& options = {}) noexcept;
  ~FailingHeap();
  FailingHeap(const FailingHeap&) = delete;
  FailingHeap& operator=(const FailingHeap&) = delete;
  /// Whether an allocation has failed since the start of the program, or the last forget().
  static bool fired() noexcept;
  static void forget() noexcept;
};

/// While alive, the heap gives out at most `bytes` more than it has now.
class LimitedHeap {
 public:
  explicit LimitedHeap(std::int64_t bytes) noexcept;
  ~LimitedHeap();
  LimitedHeap(const LimitedHeap&) = delete;
  LimitedHeap& operator=(const LimitedHeap&) = delete;
  /// Bytes that the limited heaps so far have given out and not got back.
  static std::int64_t in_use() noexcept;
};

}  // namespace firn::testing
