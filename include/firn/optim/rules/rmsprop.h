// RMSprop.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct RMSpropOptions {
  Schedule lr = 1e-2;       ///< a number, or a schedule over applied steps
  double alpha = 0.99;      ///< in [0, 1): decay of the average of squares
  double eps = 1e-8;        ///< added to the root, more than 0
  double momentum = 0;      ///< decay of the sum of updates, in [0, 1)
  bool centered = false;    ///< divide by the standard deviation, not the root mean square
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
};

/// v = alpha v + (1 - alpha) g^2;  u = g / (sqrt(v) + eps), or with centered v - a^2 in place of v,
/// a being such an average of g;  w -= lr * u, or lr * b with b = momentum * b + u. (Tieleman &
/// Hinton 2012; Graves 2013; as in torch.optim, but a variance that rounding takes below 0 counts
/// as 0.)
class RMSprop : public OptimizerOf<RMSpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<RMSpropOptions>;

}  // namespace firn::optim
