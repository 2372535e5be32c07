// What every metric asks of a batch.
#pragma once

#include "firn/tensor.h"

namespace firn::metrics {

/// Throws Error in the name of `name` unless both tensors are defined and on one device, that of
/// `kept` if it is defined. Refuses the capture of a graph.
void require_batch(const char* name, const Tensor& output, const Tensor& target,
                   const Tensor& kept);

}  // namespace firn::metrics
