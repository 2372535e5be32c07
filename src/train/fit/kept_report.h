// The report of the last whole epoch, encoded for a checkpoint.
#pragma once

#include "firn/train/fit.h"

namespace firn::train {

/// Returns memory for the figures of an epoch: u8 on the CPU, zeros.
Tensor room_for_report();
/// Writes the values that do not depend on the machine, without details. If not all metrics fit
/// (about two hundred do), the first ones are kept.
void keep_report(const EpochReport& report, const Tensor& room);
/// Returns the report that was kept; its epoch is 0 if there was none.
EpochReport kept_report(const Tensor& room);

}  // namespace firn::train
