// The host's position in the cycle. Decisions of a step are not stored here, because the device
// makes them (kernels/math/step_state.h).
#pragma once

#include <cstdint>

#include "firn/optim/step_options.h"

namespace firn::optim {

/// Counters that are part of the optimizer's state. They live in a tensor: the "cycle" of
/// Optimizer::state().
struct Progress {
  std::int64_t cycles = 0;  ///< cycles that have ended
  std::int64_t epoch = 0;   ///< epoch, which sets the length of the next cycle
  std::int64_t length = 0;  ///< calls of step() that make the cycle under way; 0: there is none
  std::int64_t calls = 0;   ///< calls of step() in this cycle so far
  std::int64_t micro_steps = 0;  ///< backward passes in this cycle so far
  std::int64_t counted = 0;      ///< micro_steps at the last call of step()

  std::int64_t length_or_next(const Accumulate& accumulate) const {
    return length > 0 ? length : accumulate.at(epoch);
  }
  /// Fixes the length of the cycle at its first event.
  void open(const Accumulate& accumulate) { length = length_or_next(accumulate); }
  void close() { length = calls = micro_steps = counted = 0; }

  void add_micro_step(const Accumulate& accumulate) {
    open(accumulate);
    ++micro_steps;
  }
  /// Returns true if backward() was called since the last call of step() that counted.
  bool has_new_micro_step() const noexcept { return micro_steps > counted; }
  /// Returns true if the next call of step() ends the cycle.
  bool ends_with_next_call(const Accumulate& accumulate) const {
    return calls + 1 >= length_or_next(accumulate);
  }
  void count_call() noexcept {
    ++calls;
    counted = micro_steps;
  }
};

}  // namespace firn::optim
