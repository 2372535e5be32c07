// Decisions of an optimizer's step, in one struct in device memory, and the formulas that change
// it. Kernels read and write it; the host does not read it during a step. The same code runs in a
// CUDA thread and on the CPU.
#pragma once

#include <cstdint>

#include "firn/optim/kinds.h"
#include "kernels/math/loss_sums.h"
#include "kernels/math/macros.h"
#include "kernels/math/optim/loss_scale.h"
#include "kernels/math/optim/schedule.h"

namespace firn::math {

using optim::NonFinite;
using optim::StepStatus;

/// The average of a rule that keeps one (ScheduleFree): step t of learning rate lr has the weight
/// t^r max(lr)^lr_power in it, the maximum being that of steps 1 to t.
struct AveragePolicy {
  bool keeps = false;  ///< the rule keeps an average
  double r = 0;
  double lr_power = 0;
};

/// The largest learning rate of weights whose rule computes in f32. Rules divide it by 1 - beta^t,
/// which is 2^-24 or more there, and the quotient is to be finite.
inline constexpr double kLargestRate = 0x1p100;
/// The largest learning rate in f64, where 1 - beta^t is 2^-53 or more.
inline constexpr double kLargestRateInF64 = 0x1p900;

/// Options of an optimizer for its steps. Constant while it lives.
struct StepPolicy {
  double clip_norm = 0;   ///< 0: no limit
  double clip_value = 0;  ///< 0: no limit
  double ema = 0;         ///< decay; 0: there is no average
  ScalePolicy scale;
  AveragePolicy average = {};
  bool maximize = false;  ///< steps go up the gradient
  /// Largest learning rate that the rule can use (kLargestRate).
  double largest_rate = 1.7976931348623157e308;
  /// Exact mode: the norm is added up chunk by chunk, so that it has the same bits if ranks have
  /// parts of the gradient. On the CPU it always is.
  bool norm_by_chunk = false;
};

/// Result of the last finished cycle, which a StepReport shows.
struct StepOutcome {
  std::int64_t cycle = 0;         ///< number of the cycle: 1 for the first
  std::int64_t applied = 0;       ///< applied steps so far, this one included
  std::int64_t skipped = 0;       ///< skipped steps so far, this one included
  std::int64_t culprit = -1;      ///< parameter with the first non-finite gradient; -1: none
  std::int64_t micro_steps = 0;   ///< backward passes of the cycle
  std::int64_t skips_in_row = 0;  ///< steps skipped for a non-finite value, up to this one
  double weight = 0;              ///< sum of the losses' weights
  double loss = 0;                ///< sum of the losses / weight
  double norm = 0;                ///< norm of the averaged gradient, before clipping
  double learning_rate = 0;       ///< learning rate that was in force
  double loss_scale = 1;          ///< loss scale that was in force
  StepStatus status = StepStatus::accumulating;  ///< before the first cycle has ended
  NonFinite non_finite = NonFinite::none;
};

/// The base, at offset 0, is the cycle that is being accumulated: next_initial_gradient() writes
/// it.
struct StepState : LossSums {
  // The decision for the step in flight: made by decide(), read by the update.
  StepStatus decision = StepStatus::accumulating;
  NonFinite non_finite = NonFinite::none;
  std::int64_t culprit = -1;
  double norm_squared = 0;     ///< squared norm of the averaged gradient
  double gradient_factor = 0;  ///< factor of the gradients: it un-scales, averages and clips
  double value_limit = 0;      ///< largest magnitude after that
  double largest = 0;          ///< largest magnitude of the averaged gradient, if requested

  // Training.
  double learning_rate = 0;  ///< rate of the next step: the schedule's value at `applied`
  std::int64_t applied = 0;
  std::int64_t skipped = 0;
  std::int64_t skips_in_row = 0;

  // The average of a rule that keeps one (AveragePolicy).
  double largest_rate = 0;  ///< largest rate of the applied steps
  double average_sum = 0;   ///< weights of the applied steps, in units of the last
  double next_sum = 0;      ///< average_sum with the step in flight
  double share = 0;         ///< share of the step in flight in next_sum

  StepOutcome last;
};

/// v within [-limit, limit]; v itself if limit is infinite, or v is NaN.
template <class V>
FIRN_HD V clip_to(V v, V limit) {
  return min(max(v, -limit), limit);
}

/// Forgets the cycle: the state is as after a finished step.
FIRN_HD inline void reset_cycle(StepState& s) {
  s.weight_sum = 0;
  s.loss_sum = 0;
  s.micro_steps = 0;
  s.unit = 1;
  s.scale = 1;
  s.decision = StepStatus::accumulating;
  s.non_finite = NonFinite::none;
  s.culprit = -1;
}

/// True if there is a gradient to look at: a cycle of total weight 0 makes no step.
FIRN_HD inline bool has_gradient(const StepState& s) { return s.weight_sum > 0; }

/// Factor from an accumulated, scaled sum to the mean gradient.
FIRN_HD inline double averaging_factor(const StepState& s) { return 1.0 / (s.unit * s.weight_sum); }

/// True if every value of a slice is finite, and stays so (below `limit`) when it is multiplied by
/// `factor`. Squares are never negative, so their sum is NaN exactly if a value is. The sum itself
/// may overflow in f64 although every value is finite: then `largest` decides.
FIRN_HD inline bool stays_finite(double sum_of_squares, double largest, double factor,
                                 double limit) {
  return sum_of_squares == sum_of_squares && factor <= limit && largest * factor <= limit;
}

/// Findings of the norm kernel about all accumulated gradients.
struct GradientSummary {
  double sum_of_squares = 0;
  double clipped_squares = 0;  ///< squares of the mean gradient after clip_value, if that is set
  double largest = 0;          ///< largest magnitude; only if the scale is being calibrated
  std::int64_t culprit = -1;   ///< first parameter with a non-finite gradient; -1: none
  bool any = true;             ///< a parameter has received a gradient in the cycle
  bool elsewhere = false;      ///< a gradient on another rank is not finite
};

/// Computes the share of the step in flight in the average of the steps. No step weighs less than
/// the one before it. So the sum is kept in units of the last weight, and no power overflows.
FIRN_HD inline void weigh_step(StepState& s, const AveragePolicy& policy) {
  const double rate = s.learning_rate > s.largest_rate ? s.learning_rate : s.largest_rate;
  const bool by_rate = policy.lr_power > 0;
  if (by_rate && !(rate > 0)) {  // it has no weight, nor had those before it
    s.next_sum = s.share = 0;
    return;
  }
  const double t = static_cast<double>(s.applied + 1);
  const double ratio =
      pow((t - 1) / t, policy.r) * (by_rate ? pow(s.largest_rate / rate, policy.lr_power) : 1.0);
  s.next_sum = 1 + s.average_sum * ratio;
  s.share = 1 / s.next_sum;
}

/// Decides the step. clip_value limits each element of the averaged gradient; clip_norm then scales
/// it by min(1, clip_norm / (norm + 1e-6)), as PyTorch's clip_grad_value_ and clip_grad_norm_ do.
FIRN_HD inline void decide(StepState& s, const StepPolicy& policy, const GradientSummary& g) {
  const double limit = 1.7976931348623157e308;
  s.culprit = g.culprit;
  s.non_finite = NonFinite::none;
  s.norm_squared = 0;
  s.gradient_factor = 0;
  if (s.weight_sum <= 0) {
    s.decision = StepStatus::skipped_empty;
    return;
  }
  const double factor = averaging_factor(s);
  s.norm_squared = g.sum_of_squares * factor * factor;
  s.largest = g.largest * factor;
  if (!(s.weight_sum <= limit)) {  // a NaN is not <=
    s.non_finite = NonFinite::weight;
  } else if (!is_finite(s.loss_sum)) {
    s.non_finite = NonFinite::loss;
  } else if (g.culprit >= 0 || g.elsewhere || !(factor <= limit)) {
    s.non_finite = NonFinite::gradient;
  } else if (!(s.learning_rate <= policy.largest_rate)) {
    s.non_finite = NonFinite::learning_rate;
  }
  if (s.non_finite != NonFinite::none) {
    s.decision = StepStatus::skipped_non_finite;
    return;
  }
  if (!g.any) {
    s.decision = StepStatus::skipped_no_gradients;
    return;
  }
  const double norm = sqrt(policy.clip_value > 0 ? g.clipped_squares : s.norm_squared);
  const double ratio = policy.clip_norm > 0 ? policy.clip_norm / (norm + 1e-6) : 1.0;
  const double clip = ratio < 1.0 ? ratio : 1.0;
  s.gradient_factor = clip < 1.0 ? factor * clip : factor;
  if (policy.maximize) s.gradient_factor = -s.gradient_factor;
  s.value_limit = policy.clip_value > 0 ? policy.clip_value * clip : static_cast<double>(HUGE_VALF);
  s.decision = StepStatus::applied;
  if (policy.average.keeps) weigh_step(s, policy.average);
}

/// Sets a new schedule, from the next step on.
FIRN_HD inline void set_schedule(StepState& s, const ScheduleTable& schedule) {
  s.learning_rate = schedule_at(schedule, s.applied);
}

/// Ends the cycle: counts it, notes its result, and prepares the next one.
FIRN_HD inline void finish_cycle(StepState& s, const ScheduleTable& schedule) {
  if (s.decision == StepStatus::applied) {
    s.applied += 1;
    s.skips_in_row = 0;
    s.average_sum = s.next_sum;  // 0 without an average
    s.largest_rate = s.learning_rate > s.largest_rate ? s.learning_rate : s.largest_rate;
  } else {
    s.skipped += 1;
    if (s.decision == StepStatus::skipped_non_finite) s.skips_in_row += 1;
  }
  s.last.cycle = s.applied + s.skipped;
  s.last.applied = s.applied;
  s.last.skipped = s.skipped;
  s.last.skips_in_row = s.skips_in_row;
  s.last.culprit = s.culprit;
  s.last.micro_steps = s.micro_steps;
  s.last.weight = s.weight_sum;
  s.last.loss = s.weight_sum != 0 ? s.loss_sum / s.weight_sum : 0;
  s.last.norm = sqrt(s.norm_squared);
  s.last.learning_rate = s.learning_rate;
  s.last.loss_scale = s.scale;
  s.last.status = s.decision;
  s.last.non_finite = s.non_finite;
  s.learning_rate = schedule_at(schedule, s.applied);
  reset_cycle(s);
}

/// Outcomes of the cycles of all optimizers that share a loss scale.
struct ScaleVotes {
  bool overflow = false;  ///< an optimizer had a gradient that was not finite
  bool applied = false;   ///< an optimizer made its step
  double largest = 0;  ///< largest magnitude of the averaged gradients of the steps that were made
};

/// Adds the vote of an optimizer that has finished its cycle.
FIRN_HD inline void vote(ScaleVotes& votes, const StepState& s) {
  if (s.last.status == StepStatus::skipped_non_finite && s.last.non_finite == NonFinite::gradient)
    votes.overflow = true;
  if (s.last.status != StepStatus::applied) return;
  votes.applied = true;
  votes.largest = s.largest > votes.largest ? s.largest : votes.largest;
}

/// Moves the shared scale, once.
FIRN_HD inline void settle_scale(ScalerState& scaler, const ScalePolicy& policy,
                                 const ScaleVotes& votes) {
  if (!votes.overflow && !votes.applied) return;
  move_scale(scaler, policy, votes.overflow);
  if (scaler.calibrating && !votes.overflow) calibrate_scale(scaler, policy, votes.largest);
}

}  // namespace firn::math
