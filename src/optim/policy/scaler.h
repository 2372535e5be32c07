// What is behind a LossScaler.
#pragma once

#include "firn/optim/loss_scale.h"
#include "kernels/math/optim/loss_scale.h"

namespace firn::optim {

struct LossScaler::State {
  Tensor memory;  ///< u8 [sizeof(math::ScalerState)]
  LossScale policy;
};

/// The policy as the kernels know it.
math::ScalePolicy policy_of(const LossScale& scale);

/// What a scaler of this policy begins with.
math::ScalerState initial_state(const LossScale& scale);

/// Throws Error, on behalf of `op`, unless set_scale() may set `scale`.
void check_scale(const char* op, const LossScale& policy, double scale);

}  // namespace firn::optim
