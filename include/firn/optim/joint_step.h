// Steps of several optimizers that share a loss scale (S16 in docs/semantics.md).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// Reaction of optimizers that step together if one of them finds a value that is not finite.
enum class SkipPolicy : std::uint8_t {
  all,   ///< no optimizer makes its step
  each,  ///< only that one is skipped
};

/// Makes the steps of optimizers that share a LossScaler, whose scale moves once (S16). Each must
/// be at the same place of cycles of the same length. Throws as step() does, after all have ended
/// their cycle; and if they do not share a LossScaler.
std::vector<StepReport> step_all(std::initializer_list<Optimizer*> optimizers,
                                 SkipPolicy policy = SkipPolicy::all);
/// Ends the current cycles of these optimizers together, as flush() does. An optimizer without
/// micro-steps in its cycle makes an empty step with the others.
std::vector<StepReport> flush_all(std::initializer_list<Optimizer*> optimizers,
                                  Partial partial = Partial::apply,
                                  SkipPolicy policy = SkipPolicy::all);

}  // namespace firn::optim
