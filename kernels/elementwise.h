// Contract of the elementwise kernels. Every view has the output's shape (operands are broadcast
// with strides 0 beforehand) and its own dtype and strides. Values are computed in one compute
// class (f32 for 16-bit, f64, or i64) and rounded once when they are stored. On the CPU, strides of
// operands may also be negative.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/binary.h"
#include "kernels/math/ternary.h"
#include "kernels/math/unary.h"

namespace firn::kernels {
namespace cpu {

/// y = f(x). An op that asks a question writes bool.
void unary(math::UnaryOp op, const ConstView& x, const View& y, math::Args args, Stream stream);
/// dx = beta*dx + dy * f'(saved); `saved` is x or y, according to the op's `saves`. beta is 0 or 1;
/// with 0, dx is not read. It takes ops for which info(op).has_gradient() holds.
void unary_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved, const View& dx,
                    math::Args args, float beta, Stream stream);
/// out = f(a, b). A comparison writes bool.
void binary(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& out,
            math::Args args, Stream stream);
/// grad = beta*grad + dy * df/da (operand 0) or dy * df/db (operand 1), as in unary_backward().
void binary_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                     const ConstView& b, const View& grad, math::Args args, float beta,
                     Stream stream);
/// out = f(a, b, c), and the gradient of one of the three operands.
void ternary(math::TernaryOp op, const ConstView& a, const ConstView& b, const ConstView& c,
             const View& out, math::Args args, Stream stream);
void ternary_backward(math::TernaryOp op, int operand, const ConstView& dy, const ConstView& a,
                      const ConstView& b, const ConstView& c, const View& grad, math::Args args,
                      float beta, Stream stream);
/// out = beta*out + (condition ? a : b); condition is bool.
void where(const ConstView& condition, const ConstView& a, const ConstView& b, const View& out,
           float beta, Stream stream);
/// y = alpha*x + beta*y, any two dtypes of one compute class; with beta 0, y is not read.
void axpby(double alpha, const ConstView& x, double beta, const View& y, Stream stream);

}  // namespace cpu

FIRN_KERNEL(unary)
FIRN_KERNEL(unary_backward)
FIRN_KERNEL(binary)
FIRN_KERNEL(binary_backward)
FIRN_KERNEL(ternary)
FIRN_KERNEL(ternary_backward)
FIRN_KERNEL(where)
FIRN_KERNEL(axpby)

}  // namespace firn::kernels
