// Rprop.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct RpropOptions {
  Schedule lr = 1e-2;  ///< step size of a parameter's first update, within the limits; later values
                       ///< have no effect
  double eta_minus = 0.5;  ///< factor of a step size if the gradient's sign changes, in (0, 1)
  double eta_plus = 1.2;   ///< factor of a step size if it does not, more than 1
  double step_min = 1e-6;  ///< smallest step size, 0 or more
  double step_max = 50;    ///< largest step size, step_min or more
};

/// Resilient propagation: each weight has a step size of its own, and moves by it against the sign
/// of its gradient. It needs the gradient of the whole data: accumulate it. (Riedmiller & Braun,
/// 1993; as in torch.optim.)
class Rprop : public OptimizerOf<RpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<RpropOptions>;

}  // namespace firn::optim
