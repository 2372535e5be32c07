// What an optimizer step decides, in one struct that lives in device memory, and the formulas that
// change it. Kernels read and write it; the host does not look inside a step. The same code runs in
// a CUDA thread and on the CPU.
#pragma once

#include <cstdint>

#include "kernels/math/macros.h"
#include "kernels/math/schedule.h"

namespace firn::math {

enum class StepStatus : std::int32_t { none, applied, skipped_empty, skipped_non_finite };

/// What the last finished cycle came to; what a StepReport shows.
struct StepOutcome {
  std::int64_t cycle = 0;     ///< number of the cycle: 1 for the first
  std::int64_t applied = 0;   ///< applied steps so far, this one included
  std::int64_t skipped = 0;   ///< skipped steps so far, this one included
  std::int64_t culprit = -1;  ///< parameter with the first non-finite gradient; -1: none
  double weight = 0;          ///< sum of the losses' weights
  double norm = 0;            ///< of the averaged gradient, before clipping
  double learning_rate = 0;   ///< that was in force
  double loss_scale = 1;      ///< that was in force
  StepStatus status = StepStatus::none;
};

struct StepState {
  // The cycle that is being accumulated.
  double weight_sum = 0;         ///< sum of the losses' weights
  std::int64_t micro_steps = 0;  ///< backward passes

  // The decision for the step in flight: made by decide(), read by the update.
  StepStatus decision = StepStatus::none;
  std::int64_t culprit = -1;
  double norm_squared = 0;     ///< of the averaged gradient
  double gradient_factor = 0;  ///< un-scales, averages and clips: what gradients are multiplied by

  // Training.
  double learning_rate = 0;  ///< of the next step: the schedule's value at `applied`
  std::int64_t applied = 0;
  std::int64_t skipped = 0;

  // Loss scale: powers of two. The policy that moves it counts here.
  double loss_scale = 1;
  std::int64_t clean_steps = 0;      ///< applied steps since the scale last changed
  std::int64_t hysteresis_left = 0;  ///< overflows still tolerated before the scale backs off

  StepOutcome last;
};

/// Begins a micro-step whose loss has the denominator `weight`. Returns the seed of its backward.
FIRN_HD inline double begin_micro_step(StepState& s, double weight) {
  s.weight_sum += weight;
  s.micro_steps += 1;
  return s.loss_scale;
}

/// Forgets the cycle: the state is as after a finished step.
FIRN_HD inline void reset_cycle(StepState& s) {
  s.weight_sum = 0;
  s.micro_steps = 0;
  s.decision = StepStatus::none;
  s.culprit = -1;
}

/// Whether there is a gradient to look at: a cycle of total weight 0 makes no step.
FIRN_HD inline bool has_gradient(const StepState& s) { return s.weight_sum > 0; }

/// What takes an accumulated, scaled sum to the mean gradient.
FIRN_HD inline double averaging_factor(const StepState& s) {
  return 1.0 / (s.loss_scale * s.weight_sum);
}

/// Whether every value of a slice with this sum of squares and largest magnitude is finite, and
/// stays so (below `limit`) when it is multiplied by `factor`. Squares are never negative: their
/// sum is NaN exactly where a value is; it may overflow, in f64, where no value has.
FIRN_HD inline bool stays_finite(double sum_of_squares, double largest, double factor,
                                 double limit) {
  return sum_of_squares == sum_of_squares && factor <= limit && largest * factor <= limit;
}

/// Decides the step from the sum of squares of all accumulated gradients and the first parameter
/// with a non-finite one (-1: none). `clip_norm` > 0 scales the averaged gradient by
/// min(1, clip_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does.
FIRN_HD inline void decide(StepState& s, double sum_of_squares, std::int64_t culprit,
                           double clip_norm) {
  const double limit = 1.7976931348623157e308;
  s.culprit = culprit;
  s.norm_squared = 0;
  s.gradient_factor = 0;
  if (s.weight_sum <= 0) {
    s.decision = StepStatus::skipped_empty;
    return;
  }
  const double factor = averaging_factor(s);
  s.norm_squared = sum_of_squares * factor * factor;
  if (culprit >= 0 || !(s.weight_sum <= limit) || !(factor <= limit)) {  // a NaN is not <=
    s.decision = StepStatus::skipped_non_finite;
    return;
  }
  const double norm = sqrt(s.norm_squared);
  const double clip = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1.0;
  s.gradient_factor = clip < 1.0 ? factor * clip : factor;
  s.decision = StepStatus::applied;
}

/// A new schedule, from the next step on.
FIRN_HD inline void set_schedule(StepState& s, const ScheduleTable& schedule) {
  s.learning_rate = schedule_at(schedule, s.applied);
}

/// Ends the cycle: counts it, notes what it came to, and makes ready for the next, which has the
/// schedule's value at the number of applied steps.
FIRN_HD inline void finish_cycle(StepState& s, const ScheduleTable& schedule) {
  if (s.decision == StepStatus::applied) {
    s.applied += 1;
  } else {
    s.skipped += 1;
  }
  s.last.cycle = s.applied + s.skipped;
  s.last.applied = s.applied;
  s.last.skipped = s.skipped;
  s.last.culprit = s.culprit;
  s.last.weight = s.weight_sum;
  s.last.norm = sqrt(s.norm_squared);
  s.last.learning_rate = s.learning_rate;
  s.last.loss_scale = s.loss_scale;
  s.last.status = s.decision;
  s.learning_rate = schedule_at(schedule, s.applied);
  reset_cycle(s);
}

}  // namespace firn::math
