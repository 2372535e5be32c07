// RAdam.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct RAdamOptions {
  Schedule lr = 1e-3;       ///< a number, or a schedule over applied steps
  double beta1 = 0.9;       ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;     ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;        ///< added to the root, more than 0
  double weight_decay = 0;  ///< 0 or more; see decoupled_weight_decay
  /// false: weight_decay * w is added to the gradient, after clipping. true: w -= lr * weight_decay
  /// * w, apart from the gradient.
  bool decoupled_weight_decay = false;
};

/// Adam whose first steps, while the second moment is uncertain, do not divide by it. m and v as in
/// Adam; r_max = 2 / (1 - beta2) - 1; r = r_max - 2 t beta2^t / (1 - beta2^t). If r > 5: w -= lr
/// rectifier (m / (1 - beta1^t)) sqrt(1 - beta2^t) / (sqrt(v) + eps), with rectifier^2 = (r - 4) (r
/// - 2) r_max / ((r_max - 4) (r_max - 2) r); else w -= lr m / (1 - beta1^t). (Liu et al., 2020; as
/// in torch.optim.)
class RAdam : public OptimizerOf<RAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<RAdamOptions>;

}  // namespace firn::optim
