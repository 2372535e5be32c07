// Stochastic gradient descent.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct SGDOptions {
  Schedule lr = 1e-2;       ///< a number, or a schedule over applied steps
  double momentum = 0;      ///< decay of the sum of gradients, in [0, 1)
  double dampening = 0;     ///< in [0, 1]: share of a new gradient that the momentum leaves out
  bool nesterov = false;    ///< needs momentum > 0 and dampening 0
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
};

/// g = gradient + weight_decay * w;  b = momentum * b + (1 - dampening) * g, and b = g at first;
/// w -= lr * b, or lr * (g + momentum * b) with nesterov. (Sutskever et al., 2013, as in
/// torch.optim.)
class SGD : public OptimizerOf<SGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<SGDOptions>;

}  // namespace firn::optim
