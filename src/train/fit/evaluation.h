// Evaluates an epoch: computes loss and metrics of a set, or calls the user's function.
#pragma once

#include <functional>
#include <vector>

#include "firn/train/fit.h"

namespace firn::train {

/// The model and the loss of fit(), as functions of a batch.
struct Objective {
  std::function<Tensor(const data::LoaderBatch&)> forward;
  LossFunction loss;
};

/// Sets validation_loss and adds to the metrics of the report. All ranks make the call.
void evaluate_into(EpochReport& report, const Parts& parts, const Objective& objective,
                   const FitOptions& options);

}  // namespace firn::train
