// The memory that the optimizer's kernels share.
#pragma once

#include <span>

#include "kernels/dispatch.h"
#include "kernels/math/optim/step_state.h"
#include "kernels/plan/pending_gradient.h"

namespace firn::kernels {

/// Device memory that all arenas of an optimizer share.
struct StepMemory {
  View state;     ///< u8 [sizeof(math::StepState)]
  View touched;   ///< u8 [parameters]: not 0 if it has a gradient in this cycle (optim_set_touched)
  View counts;    ///< i64 [parameters]: updates applied to each
  View schedule;  ///< u8 [sizeof(math::ScheduleTable)]: the schedule of the learning rate
  View scaler;    ///< u8 [sizeof(math::ScalerState)]; several optimizers may share it
  View ticket;    ///< u8 [64] workspace: zeros before and after every kernel
  /// Host memory that the device can write: a copy of the last outcome, which the host reads
  /// without waiting. It may be some cycles old. It is nullptr if the host does not read it.
  math::StepOutcome* watch = nullptr;
};

/// Returns the pending initial gradient of a backward pass of this memory's cycle, for a loss of
/// this value and weight. With weight.data == nullptr the weight is host_weight.
inline PendingGradient pending_gradient(const StepMemory& m, const math::StepPolicy& policy,
                                        const View& gradient, const ConstView& loss,
                                        const ConstView& weight, double host_weight = 0) {
  return {.sums = m.state,  // math::StepState begins with its base, math::LossSums
          .scaler = m.scaler,
          .ticket = m.ticket,
          .policy = policy.scale,
          .gradient = gradient,
          .loss = loss,
          .weight = weight,
          .host_weight = host_weight};
}

/// Serve the dispatcher (found by argument-dependent lookup).
inline Device device_of(const StepMemory& m) { return m.state.device; }
inline Device device_of(std::span<const StepMemory> m) { return m.front().state.device; }

}  // namespace firn::kernels
