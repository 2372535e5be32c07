// The description of an optimizer that a saved run compares.
#pragma once

#include <string>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// Returns describe() without the length of the cycle and the learning rate, which change in a run
/// and are restored with the state.
std::string describe_settings(const Optimizer& optimizer);

}  // namespace firn::optim
