// Input of a rule for the step that it is to make, and formulas that rules share.
#pragma once

#include "kernels/math/optim/step_state.h"

namespace firn::math {

/// Values that change in every step; the update kernel reads them from device memory.
struct StepInput {
  double learning_rate;    ///< rate of the parameter's group
  double gradient_factor;  ///< turns the accumulated sum into the clipped mean gradient
  std::int64_t count;      ///< updates of this parameter, this one included: 1 at the first
  double trust_ratio = 1;  ///< ratio of this parameter and step, for rules that have one
  double share = 0;        ///< share of this step in a rule's average (AveragePolicy, step_state.h)
};

/// The moving average `e` of a weight after a step that took it to `w`; intake = 1 - decay.
template <class V>
FIRN_HD V moving_average(V e, V w, V intake) {
  return e + intake * (w - e);
}

/// The sign of x: 1, 0 or -1.
template <class V>
FIRN_HD V sign_of(V x) {
  return where(x > V(0), V(1), V(0)) - where(x < V(0), V(1), V(0));
}

}  // namespace firn::math
