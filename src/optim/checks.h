// Checks of the arguments and of the order of calls of an optimizer, and its warnings.
#pragma once

#include "optim/access.h"

namespace firn::optim {

/// Throws Error if the loss scale is shared. `instead` names the call to use then.
void require_own_scale(const OptimizerImpl& impl, const char* instead);
/// Throws Error if a cycle that overflows is to be computed again, since `call` is not given the
/// cycle as a function.
void require_no_retry(const OptimizerImpl& impl, const char* call);
/// Throws Error unless the loss's weight is a scalar in f32 or f64 on the parameters' device.
void require_weight(const OptimizerImpl& impl, const Loss& loss);
/// Throws Error unless the sum of a loss is a scalar in f32 or f64 on the parameters' device, and
/// its graph reaches parameters.
void require_scalar(const OptimizerImpl& impl, const Tensor& sum);
/// Throws OutOfMemory after the user's function that computes a cycle threw std::bad_alloc.
[[noreturn]] void fail_of_function(const OptimizerImpl& impl);

/// Throws Error if too many steps in a row were skipped (S12), and only once for each of these
/// steps. On a device it checks the latest outcome that the host can see without waiting.
void check_skips(OptimizerImpl& impl);
/// Each of these warns once, and never in a plan. warn_if_unreached() also warns about parameters
/// that were replaced.
void warn_if_unreached(OptimizerImpl& impl, bool reached);
void warn_of_empty_step(OptimizerImpl& impl);
void warn_if_unscaled(OptimizerImpl& impl);
/// Warns before zero_grad() right after a step() that has not ended its cycle.
void warn_of_dropped_calls(OptimizerImpl& impl);

}  // namespace firn::optim
