// Schedule-free AdamW.
#pragma once

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct ScheduleFreeAdamWOptions {
  Schedule lr = 2.5e-3;           ///< a number; a schedule over applied steps is allowed
  double beta1 = 0.9;             ///< weight of x in y, in (0, 1); groups may set it
  double beta2 = 0.999;           ///< decay of the second moment, in [0, 1)
  double eps = 1e-8;              ///< added to the root, more than 0
  double weight_decay = 0;        ///< 0 or more; apart from the gradient, at y
  std::int64_t warmup_steps = 0;  ///< 0 or more: applied steps over which lr rises linearly
  double r = 0;                   ///< 0 or more; see below
  double weight_lr_power = 2;     ///< 0 or more; see below
};

/// AdamW without a schedule: in place of a falling learning rate it averages. (Defazio, Yang,
/// Mehta, Mishchenko, Khaled & Cutkosky, 2024, "The Road Less Scheduled".)
///   v = beta2 v + (1 - beta2) g^2;  u = g / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay y
///   z -= lr u;  x += c (z - x);  y = (1 - beta1) z + beta1 x
/// c is the share of this applied step t in the sum of t^r max(lr so far)^weight_lr_power. With a
/// constant lr and r = 0 all steps have the same share, except for those of the warm-up.
///
/// Gradients are taken at y, and x is the result of the training. A module in training mode has the
/// weights y. A module in evaluation mode has x: when it is called as the outermost module, and
/// when its parameters are listed, saved, loaded, copied or cloned. Going back to training gives
/// the bits of y again. Modules called inside another one follow the outermost one's mode, so a
/// part that is frozen in evaluation mode trains with y. Tensors that belong to no module are y.
///
/// A loss for backward() must come from training mode: backward() throws Error if a module in
/// evaluation mode was called between a forward pass and its backward pass. state() and
/// io::save_run() have y, z and x in either mode. If other code changes a weight, its new value
/// becomes y, z and x. The destructor leaves x in the parameters. f16 and bf16 weights have
/// masters: StepOptions::stochastic_rounding is refused. A replayed graph has the weights of the
/// mode that it was recorded in; a graph that would change the mode is refused. set_lr() replaces
/// the warm-up too.
class ScheduleFreeAdamW : public OptimizerOf<ScheduleFreeAdamWOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<ScheduleFreeAdamWOptions>;

}  // namespace firn::optim
