// An initial gradient that is still to be computed, and the memory for that. Any kernel of a
// backward pass can compute it on the way, so that it costs no launch of its own.
#pragma once

#include "firn/view.h"
#include "kernels/math/loss_sums.h"

namespace firn::kernels {

/// Exactly one kernel of the pass calls math::next_initial_gradient and writes its result to
/// `gradient`.
struct PendingGradient {
  View sums;    ///< u8: memory that begins with a math::LossSums
  View scaler;  ///< u8 [sizeof(math::ScalerState)]
  View ticket;  ///< u8 [64] workspace: zeros before and after every kernel
  math::ScalePolicy policy;
  View gradient;     ///< f32 or f64 scalar
  ConstView loss;    ///< f32 or f64 scalar
  ConstView weight;  ///< f32 or f64 scalar; it is host_weight if data == nullptr
  double host_weight = 0;
};

/// Serves the dispatcher (found by argument-dependent lookup).
inline Device device_of(const PendingGradient& p) { return p.sums.device; }

}  // namespace firn::kernels
