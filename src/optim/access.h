// How firn's own functions of an optimizer, such as step_all(), reach what is behind it.
#pragma once

#include "firn/optim/optimizer.h"

namespace firn::optim {

struct OptimizerAccess {
  using Impl = Optimizer::Impl;
  /// Throws Error if the optimizer was moved from.
  static Impl& impl(const Optimizer& o) { return o.impl(); }
};
using OptimizerImpl = OptimizerAccess::Impl;

}  // namespace firn::optim
