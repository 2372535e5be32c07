// Adadelta.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct AdadeltaOptions {
  Schedule lr = 1.0;        ///< a number, or a schedule over applied steps
  double rho = 0.9;         ///< decay of both averages, in [0, 1)
  double eps = 1e-6;        ///< added under both roots, more than 0
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
};

/// v = rho v + (1 - rho) g^2;  u = sqrt(a + eps) / sqrt(v + eps) g;  a = rho a + (1 - rho) u^2;  w
/// -= lr * u. (Zeiler, 2012; as in torch.optim.)
class Adadelta : public OptimizerOf<AdadeltaOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<AdadeltaOptions>;

}  // namespace firn::optim
