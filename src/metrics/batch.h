// Checks of a batch that all metrics share.
#pragma once

#include "firn/tensor.h"

namespace firn::metrics {

/// Throws Error in the name of `name` unless both tensors are defined and on one device. If `kept`
/// is defined, that must be its device. Refuses the capture of a graph.
void require_batch(const char* name, const Tensor& output, const Tensor& target,
                   const Tensor& kept);

}  // namespace firn::metrics
