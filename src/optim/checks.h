// Checks of what users give to an optimizer, and of when they call it.
#pragma once

#include "optim/access.h"

namespace firn::optim {

/// Throws Error if the loss scale is shared; `instead` is what to call.
void require_own_scale(const OptimizerImpl& impl, const char* instead);
/// Throws Error unless the loss's weight is a scalar in f32 or f64 on the parameters' device.
void require_weight(const OptimizerImpl& impl, const Loss& loss);
/// Throws Error unless the sum of a loss is a scalar in f32 or f64 on the parameters' device, of a
/// graph that reaches parameters.
void require_scalar(const OptimizerImpl& impl, const Tensor& sum);
/// Throws OutOfMemory: the function of the call that makes the cycle threw std::bad_alloc.
[[noreturn]] void fail_of_function(const OptimizerImpl& impl);

/// Throws Error if too many steps in a row were skipped (S12), once for each of them. On a device
/// it looks at the outcome that the host can see without waiting.
void check_skips(OptimizerImpl& impl);
/// Each warns once. The first one also of parameters that were replaced.
void warn_if_unreached(OptimizerImpl& impl, bool reached);
void warn_of_empty_step(OptimizerImpl& impl);
void warn_if_unscaled(OptimizerImpl& impl);

}  // namespace firn::optim
