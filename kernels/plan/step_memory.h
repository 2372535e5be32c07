// The memory that the optimizer's kernels share, and the beginning of a micro-step: by the
// optimizer's own kernel (optim.h), or in passing by the one that begins the backward pass
// (rows.h).
#pragma once

#include <span>

#include "kernels/dispatch.h"
#include "kernels/math/step_state.h"

namespace firn::kernels {

/// What all arenas of an optimizer share, in device memory.
struct StepMemory {
  View state;     ///< u8 [sizeof(StepState)]
  View touched;   ///< u8 [parameters]: received a gradient in this cycle (optim_set_touched)
  View counts;    ///< i64 [parameters]: updates applied to each
  View schedule;  ///< u8 [sizeof(math::ScheduleTable)]: of the learning rate
  View scaler;    ///< u8 [sizeof(math::ScalerState)]; several optimizers may have the same
  View ticket;    ///< u8 [64] workspace: zeros before and after every kernel
  /// Memory of the host that the device can write: a copy of the last outcome, which the host can
  /// look at without waiting. It may be some cycles old. nullptr: nobody wants to know.
  math::StepOutcome* watch = nullptr;
};

/// The beginning of a micro-step (math::begin_micro_step): *seed (f32 or f64 scalar) = the unit of
/// the arenas; the sums of losses and weights grow by *loss and by *weight, or host_weight where
/// weight.data == nullptr.
struct MicroStep {
  StepMemory memory;
  math::StepPolicy policy;
  View seed;
  ConstView loss, weight;
  double host_weight = 0;
};

/// For the dispatcher (found by argument-dependent lookup).
inline Device device_of(const StepMemory& m) { return m.state.device; }
inline Device device_of(const MicroStep& m) { return device_of(m.memory); }
inline Device device_of(std::span<const StepMemory> m) { return m.front().state.device; }

}  // namespace firn::kernels
