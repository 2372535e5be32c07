// Access to the implementation behind an Optimizer, for firn's own functions such as step_all().
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
