// Adam and AdamW.
#pragma once

#include <vector>

#include "firn/optim/optimizer.h"

namespace firn::optim {

struct AdamOptions {
  double lr = 1e-3;         ///< 0 or more
  double beta1 = 0.9;       ///< in [0, 1)
  double beta2 = 0.999;     ///< in [0, 1)
  double eps = 1e-8;        ///< more than 0
  double weight_decay = 0;  ///< 0 or more; adds weight_decay * w to the gradient, after clipping
  double clip_norm = 0;  ///< largest norm of the averaged gradient of all parameters; 0: no limit
};

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), with t the number of updates
/// that the parameter has had, this one included. (Kingma & Ba, 2015.)
class Adam : public Optimizer {
 public:
  /// Throws as SGD does.
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParamGroup> groups, const AdamOptions& options = {});
};

struct AdamWOptions {
  double lr = 1e-3;            ///< 0 or more
  double beta1 = 0.9;          ///< in [0, 1)
  double beta2 = 0.999;        ///< in [0, 1)
  double eps = 1e-8;           ///< more than 0
  double weight_decay = 1e-2;  ///< 0 or more; w -= lr * weight_decay * w, apart from the gradient
  double clip_norm = 0;  ///< largest norm of the averaged gradient of all parameters; 0: no limit
};

/// Adam with decoupled weight decay. (Loshchilov & Hutter, 2019.)
class AdamW : public Optimizer {
 public:
  /// Throws as SGD does.
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParamGroup> groups, const AdamWOptions& options = {});
};

}  // namespace firn::optim
