// NAdam.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct NAdamOptions {
  Schedule lr = 2e-3;    ///< a number, or a schedule over applied steps
  double beta1 = 0.9;    ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;  ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;     ///< added to the root, more than 0
  double momentum_decay =
      4e-3;                 ///< 0 or more; the momentum is beta1 (1 - 0.96^(t momentum_decay) / 2)
  double weight_decay = 0;  ///< 0 or more; see decoupled_weight_decay
  /// false: weight_decay * w is added to the gradient, after clipping. true: w -= lr * weight_decay
  /// * w, apart from the gradient.
  bool decoupled_weight_decay = false;
};

/// Adam with Nesterov's momentum. m and v as in Adam; c_t = beta1 (1 - 0.96^(t momentum_decay) /
/// 2); p = c_1 c_2 ... c_t; w -= lr ((1 - c_t) / (1 - p) g + c_(t+1) / (1 - p c_(t+1)) m) / (sqrt(v
/// / (1 - beta2^t)) + eps), with t the number of updates that the parameter has had, this one
/// included. (Dozat, 2016; as in torch.optim.)
class NAdam : public OptimizerOf<NAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<NAdamOptions>;

}  // namespace firn::optim
