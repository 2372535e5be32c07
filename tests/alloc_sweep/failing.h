// Makes an allocation of the program fail, whoever asks for it: firn, the standard library, oneDNN.
// Under sanitizers, which own malloc, `new` stands for the heap.
#pragma once

#include <cstdint>

namespace firn::testing {

/// While alive, the k-th allocation from now on (0 is the next one) fails, in any thread; with
/// `sticky`, so do all after it. What a kernels::cpu::Reserve covers counts only if `covered_too`.
class FailingHeap {
 public:
  explicit FailingHeap(std::int64_t k, bool sticky = false, bool covered_too = false) noexcept;
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
