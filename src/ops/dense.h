// What linear and mlp share.
#pragma once

#include "ops/common.h"

namespace firn::ops {

/// Adds the gradients of a dense layer's weight (input `weight`: dyᵀ x) and bias (input `bias`: the
/// sum of dy's rows), each where it is asked for, in one launch where the sinks allow.
void accumulate_dense(Backward& back, int weight, int bias, const Tensor& dy, const Tensor& x);

}  // namespace firn::ops
