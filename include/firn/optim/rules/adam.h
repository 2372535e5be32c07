// Adam and AdamW.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct AdamOptions {
  Schedule lr = 1e-3;       ///< a number, or a schedule over applied steps
  double beta1 = 0.9;       ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;     ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;        ///< added to the root, more than 0
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
  bool amsgrad = false;     ///< divide by the largest second moment so far (Reddi et al. 2018)
  /// bits8: 2.03 bytes a parameter instead of 8, see StatePrecision. A second moment above 0 is
  /// never rounded to 0. f64 parameters are refused. Embeddings train better with full states: a
  /// group may set its own. amsgrad has no such form.
  StatePrecision state = StatePrecision::full;
  std::int64_t min_8bit_size = 4096;  ///< parameters of fewer elements keep full states; 0 or more
};

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), with t the number of updates
/// that the parameter has had, this one included. (Kingma & Ba, 2015.)
class Adam : public OptimizerOf<AdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<AdamOptions>;

struct AdamWOptions {
  Schedule lr = 1e-3;          ///< a number, or a schedule over applied steps
  double beta1 = 0.9;          ///< decay of the first moment, in [0, 1)
  double beta2 = 0.999;        ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;           ///< added to the root, more than 0
  double weight_decay = 1e-2;  ///< 0 or more; w -= lr * weight_decay * w, apart from the gradient
  bool amsgrad = false;        ///< divide by the largest second moment so far (Reddi et al. 2018)
  /// See AdamOptions.
  StatePrecision state = StatePrecision::full;
  std::int64_t min_8bit_size = 4096;  ///< parameters of fewer elements keep full states; 0 or more
};

/// Adam with decoupled weight decay. (Loshchilov & Hutter, 2019.)
class AdamW : public OptimizerOf<AdamWOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<AdamWOptions>;

}  // namespace firn::optim
