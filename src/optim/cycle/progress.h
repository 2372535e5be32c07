// Where the host is in the cycle. The decisions of a step are not here: the device makes them
// (kernels/math/step_state.h).
#pragma once

#include <cstdint>

#include "firn/optim/step_options.h"

namespace firn::optim {

/// Part of the optimizer's state, so it lives in a tensor: the "cycle" of Optimizer::state().
struct Progress {
  std::int64_t cycles = 0;       ///< ended so far
  std::int64_t epoch = 0;        ///< for the length of the next cycle
  std::int64_t length = 0;       ///< calls of step() in the cycle under way; 0: there is none
  std::int64_t calls = 0;        ///< of step() so far
  std::int64_t micro_steps = 0;  ///< backward passes so far
  std::int64_t counted = 0;      ///< micro_steps at the last call of step()

  std::int64_t length_or_next(const Accumulate& accumulate) const {
    return length > 0 ? length : accumulate.at(epoch);
  }
  /// The first event of a cycle fixes its length.
  void open(const Accumulate& accumulate) { length = length_or_next(accumulate); }
  void close() { length = calls = micro_steps = counted = 0; }

  void add_micro_step(const Accumulate& accumulate) {
    open(accumulate);
    ++micro_steps;
  }
  /// Whether there was a backward() since the last call of step() that counted.
  bool has_new_micro_step() const noexcept { return micro_steps > counted; }
  /// Whether the next call of step() ends the cycle.
  bool ends_with_next_call(const Accumulate& accumulate) const {
    return calls + 1 >= length_or_next(accumulate);
  }
  void count_call() noexcept {
    ++calls;
    counted = micro_steps;
  }
};

}  // namespace firn::optim
