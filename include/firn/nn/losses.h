// The losses of firn/ops/losses.h and loss_terms.h in namespace nn too: nn::cross_entropy(net(x),
// y).
#pragma once

#include "firn/ops/loss_terms.h"
#include "firn/ops/losses.h"

namespace firn::nn {

using firn::bce_loss;
using firn::bce_with_logits;
using firn::BceOptions;
using firn::cosine_embedding_loss;
using firn::cross_entropy;
using firn::CrossEntropyOptions;
using firn::dice_loss;
using firn::focal_loss;
using firn::FocalOptions;
using firn::gaussian_nll_loss;
using firn::GaussianNllOptions;
using firn::hinge_embedding_loss;
using firn::hinge_loss;
using firn::huber_loss;
using firn::kl_div;
using firn::l1_loss;
using firn::linear_cross_entropy;
using firn::LinearCrossEntropyOptions;
using firn::Loss;
using firn::LossTerms;
using firn::margin_ranking_loss;
using firn::mse_loss;
using firn::nll_loss;
using firn::poisson_nll_loss;
using firn::PoissonNllOptions;
using firn::smooth_l1_loss;
using firn::soft_margin_loss;
using firn::triplet_margin_loss;
using firn::TripletMarginOptions;

}  // namespace firn::nn
