// The losses of firn/ops/losses.h in namespace nn too: nn::cross_entropy(net(x), y).
#pragma once

#include "firn/ops/losses.h"

namespace firn::nn {

using firn::bce_with_logits;
using firn::cross_entropy;
using firn::CrossEntropyOptions;
using firn::huber_loss;
using firn::kl_div;
using firn::l1_loss;
using firn::linear_cross_entropy;
using firn::LinearCrossEntropyOptions;
using firn::Loss;
using firn::mse_loss;
using firn::nll_loss;

}  // namespace firn::nn
