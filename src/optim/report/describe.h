// What a saved run compares of an optimizer.
#pragma once

#include <string>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// describe() without what changes in a run and is restored with the state: the length of the cycle
/// and the learning rate.
std::string describe_settings(const Optimizer& optimizer);

}  // namespace firn::optim
