// Common part of the files of losses: checks of pairs, and the terms of a fused binary operation.
#pragma once

#include "firn/ops/loss_terms.h"
#include "kernels/elementwise.h"
#include "ops/common.h"

namespace firn::ops {

/// Throws unless both are floating, of one shape and device, and computed alike.
void require_pair(const char* op, const Tensor& prediction, const Tensor& target);

/// Throws unless `value` is finite, and at least `least` or, if `above` is set, above it.
void require_number(const char* op, const char* name, double value, double least, bool above,
                    const char* hint);

/// t expanded to a shape. Throws Error naming it if it does not broadcast.
Tensor spread(const char* op, const char* name, const Tensor& t, const Shape& shape);

/// `out`, which holds op(prediction, target) or its sum, recorded with the gradients of both.
Tensor record_pair(math::BinaryOp op, const Tensor& out, const Tensor& prediction,
                   const Tensor& target, math::Args args);

/// op(prediction, target) for each element, in the compute dtype.
Tensor pair_terms(math::BinaryOp op, const Tensor& prediction, const Tensor& target,
                  math::Args args = {});

/// x in the dtype that it is computed in.
inline Tensor wide(const Tensor& x) { return cast(x, compute_dtype(x.dtype())); }

}  // namespace firn::ops
