// LAMB.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct LAMBOptions {
  Schedule lr = 1e-3;          ///< a number, or a schedule over applied steps
  double beta1 = 0.9;          ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;        ///< decay of the second moment, in [0, 1)
  double eps = 1e-6;           ///< added to the root, more than 0
  double weight_decay = 1e-2;  ///< 0 or more; adds weight_decay * w to the update, before its norm
};

/// u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w, with m, v and t of
/// Adam;  w -= lr * (|w| / |u|) * u, with the norms of the whole parameter. The ratio is 1 where
/// one of them is 0. (You et al. 2020, algorithm 2 with phi(z) = z.)
class LAMB : public OptimizerOf<LAMBOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<LAMBOptions>;

}  // namespace firn::optim
