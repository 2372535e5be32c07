// The moving averages of an optimizer's weights (StepOptions::ema).
#pragma once

#include <memory>
#include <vector>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// Returns the moving averages of the parameters, in the order of Optimizer::parameters(), f32 or
/// f64. They share the optimizer's memory. With sharded state (dist/distribute.h) they are copies,
/// and all ranks must call this. Throws Error unless StepOptions::ema is set.
std::vector<Tensor> ema(const Optimizer& optimizer);

/// While it lives, the weights are their moving averages: for evaluation.
///
///   { const optim::AveragedWeights averaged(opt); evaluate(net); }
///
/// backward(), step(), state() and dist::distribute() throw Error meanwhile. The destructor puts
/// the weights back, even if the optimizer is gone by then. In a plan that began within the scope,
/// it does so when the plan ends. A parameter that was written meanwhile, for example by
/// copy_from(), keeps its new values.
///
/// Buffers have no averages: the running statistics of a BatchNorm stay those of the trained
/// weights. nn::RecomputedStatistics computes statistics of the averages.
class AveragedWeights {
 public:
  /// Throws Error if StepOptions::ema is not set, or if the optimizer cannot go on.
  [[nodiscard]] explicit AveragedWeights(Optimizer& optimizer);
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;
  ~AveragedWeights();

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< held by this object alone
};

}  // namespace firn::optim
