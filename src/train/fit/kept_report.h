// The report of the last whole epoch, as a checkpoint keeps it.
#pragma once

#include "firn/train/fit.h"

namespace firn::train {

/// Room for the figures of an epoch: u8 on the CPU, zeros.
Tensor room_for_report();
/// Writes what does not depend on the machine, without details. Of more metrics than fit (about two
/// hundred) the first are kept.
void keep_report(const EpochReport& report, const Tensor& room);
/// What was kept; epoch 0 if nothing was.
EpochReport kept_report(const Tensor& room);

}  // namespace firn::train
