// Adagrad.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct AdagradOptions {
  Schedule lr = 1e-2;              ///< a number, or a schedule over applied steps
  double lr_decay = 0;             ///< 0 or more; update t has lr / (1 + (t - 1) * lr_decay)
  double eps = 1e-10;              ///< added to the root, more than 0
  double initial_accumulator = 0;  ///< 0 or more: start of the sum of squares
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
};

/// s += g^2;  w -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps), with t the number of updates
/// that the parameter has had, this one included. (Duchi, Hazan & Singer 2011; as in torch.optim.)
class Adagrad : public OptimizerOf<AdagradOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<AdagradOptions>;

}  // namespace firn::optim
