// What an epoch is worth: loss and metrics of a set, or what the user's function returns.
#pragma once

#include <functional>
#include <vector>

#include "firn/train/fit.h"

namespace firn::train {

/// The model and the loss of fit(), as batches see them.
struct Objective {
  std::function<Tensor(const data::LoaderBatch&)> forward;
  LossFunction loss;
};

/// Sets validation_loss and adds to the metrics of the report. A call of all ranks.
void evaluate_into(EpochReport& report, const Parts& parts, const Objective& objective,
                   const FitOptions& options);

}  // namespace firn::train
