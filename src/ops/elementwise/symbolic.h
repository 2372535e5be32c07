// Gradients of elementwise operations as recorded operations, from the formulas of kernels/math:
// these are evaluated with tensors in place of numbers. So they can be differentiated again.
#pragma once

#include "firn/tensor.h"
#include "kernels/math/ternary.h"
#include "kernels/math/unary.h"

namespace firn::ops {

/// Returns the gradient with respect to the operand, from dy and what was saved.
Tensor unary_gradient(math::UnaryOp op, const Tensor& dy, const Tensor& saved, math::Args args);
/// Returns the gradient with respect to operand i. Operands that its formula does not read may be
/// any tensor. All broadcast; the result is not summed over repeated axes.
Tensor binary_gradient(math::BinaryOp op, int i, const Tensor& dy, const Tensor& a, const Tensor& b,
                       math::Args args = {});
Tensor ternary_gradient(math::TernaryOp op, int i, const Tensor& dy, const Tensor& a,
                        const Tensor& b, const Tensor& c, math::Args args);

}  // namespace firn::ops
