// Weights with two sets of values, one to train and one to evaluate. An optimizer may keep a second
// set of values for the leaves that it trains. A module chooses by its mode which of the two the
// leaf shows (nn/shown_weights.h). Optimizer and module know only this interface.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::autograd {

/// The modes of all leaves of one optimizer, which share memory and change together.
class WeightModes {
 public:
  /// Makes the leaves hold their averaged values, or those of training. Costs nothing if they do
  /// already. Throws Error if the work cannot be queued, for example in a capture.
  virtual void show(bool averaged) = 0;

  WeightModes(const WeightModes&) = delete;
  WeightModes& operator=(const WeightModes&) = delete;

  /// Number of times that the leaves have changed from one set to the other.
  std::uint32_t changes() const noexcept { return changes_; }

  /// Returns true if the process has such leaves. Without them, no weight needs to be checked.
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
