// Lion.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct LionOptions {
  Schedule lr = 1e-4;       ///< a number, or a schedule over applied steps
  double beta1 = 0.9;       ///< the weight of m in an update, in [0, 1)
  double beta2 = 0.99;      ///< decay of m, in [0, 1)
  double weight_decay = 0;  ///< 0 or more; w -= lr * weight_decay * w, apart from the gradient
  /// bits8: 1.02 bytes a parameter instead of 4; see AdamOptions.
  StatePrecision state = StatePrecision::full;
  std::int64_t min_8bit_size = 4096;  ///< parameters of fewer elements keep full states; 0 or more
};

/// w -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * w);  m = beta2 m + (1 - beta2) g.
/// sign(0) is 0. (Chen et al. 2023, algorithm 2.)
class Lion : public OptimizerOf<LionOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<LionOptions>;

}  // namespace firn::optim
