// The state behind a LossScaler.
#pragma once

#include "firn/optim/loss_scale.h"
#include "kernels/math/optim/loss_scale.h"

namespace firn::optim {

struct LossScaler::State {
  Tensor memory;  ///< u8 [sizeof(math::ScalerState)]
  LossScale policy;
};

/// Converts the policy to the form that kernels use.
math::ScalePolicy policy_of(const LossScale& scale);

/// Returns true if a cycle that overflows is to be computed again.
bool retries(const LossScale& scale) noexcept;

/// Returns the initial state of a scaler with this policy.
math::ScalerState initial_state(const LossScale& scale);

/// Throws Error, on behalf of `op`, unless set_scale() may set `scale`.
void check_scale(const char* op, const LossScale& policy, double scale);

}  // namespace firn::optim
