// Weights with two sets of values: one to train, one to evaluate. Whoever trains a leaf may keep a
// second set of values for it, and offers both here. Modules choose by their mode which of the two
// the leaf shows (nn/shown_weights.h). Neither knows the other: they meet at the leaf.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::autograd {

/// The modes of all leaves of one optimizer together: their memory is one.
class WeightModes {
 public:
  /// From now on the leaves hold their averaged values, or those of training. A call that changes
  /// nothing costs nothing. Throws Error if the work cannot be queued, for example in a capture.
  virtual void show(bool averaged) = 0;

  WeightModes(const WeightModes&) = delete;
  WeightModes& operator=(const WeightModes&) = delete;

  /// How often the leaves have changed from one set to the other.
  std::uint32_t changes() const noexcept { return changes_; }

  /// Whether there is one in the process: without one, nobody has to look for any.
  static bool any() noexcept { return alive_.load(std::memory_order_relaxed) > 0; }

 protected:
  WeightModes() noexcept { alive_.fetch_add(1, std::memory_order_relaxed); }
  ~WeightModes() { alive_.fetch_sub(1, std::memory_order_relaxed); }
  void note_change() noexcept { ++changes_; }

 private:
  static inline constinit std::atomic<int> alive_{0};
  std::uint32_t changes_ = 0;
};

}  // namespace firn::autograd
