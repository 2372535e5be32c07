// Checks of a state that was copied into an optimizer (Optimizer::state()).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "firn/optim/schedule.h"
#include "kernels/math/optim/step_state.h"
#include "optim/cycle/progress.h"

namespace firn::optim {

/// Returns "AdamW state 2": the kind of optimizer, and the version of the meaning of its state.
std::string kind_of_state(const std::string& op);

/// A state on the host, as it was copied in.
struct CopiedState {
  std::string kind;
  std::span<const std::int64_t> update_counts;
  std::span<const std::uint8_t> touched;
  const math::ScheduleTable& schedule;
  double largest_rate;  ///< the largest rate that the rules can use
  const math::ScalerState& scaler;
  const math::StepState& step;
  const Progress& progress;
};

/// Throws Error, naming the tensor and its value, unless optimizer `op` can continue from this
/// state. Returns the state's schedule.
Schedule check_state(const std::string& op, const CopiedState& state);

}  // namespace firn::optim
