// Contract of the reductions over axes. Sums accumulate in the compute dtype, in an order that
// depends on the shape alone. So the bits are equal for any number of threads.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/fold.h"

namespace firn::kernels {

#define FIRN_REDUCE_OP(name, fold) name,
enum class ReduceOp { FIRN_REDUCTIONS(FIRN_REDUCE_OP) };
#undef FIRN_REDUCE_OP

namespace cpu {

/// out = beta*out + scale * reduction of x over the axes along which out has size 1 and x does not
/// (out has x's rank). beta and scale are 0 and 1, except in sum and sum_squares. In max and min a
/// NaN wins. any and all give 0 and 1. An empty sum is 0, an empty product 1. Squares are summed in
/// f64.
void reduce(ReduceOp op, const ConstView& x, const View& out, double scale, float beta,
            Stream stream);
/// out (i64, x's rank with size 1 at `axis`) = position of the first maximum along `axis`; a NaN
/// counts as the maximum.
void argmax(const ConstView& x, const View& out, int axis, Stream stream);
/// out = position of the first minimum, as in argmax(); a NaN counts as the minimum.
void argmin(const ConstView& x, const View& out, int axis, Stream stream);
/// Gradient of max and min: dx = beta*dx + dy/m at the m elements of x that equal the extremum y
/// (or are NaN), else beta*dx. y and dy have size 1 on the reduced axes.
void extremum_backward(const ConstView& dy, const ConstView& x, const ConstView& y, const View& dx,
                       float beta, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(reduce)
FIRN_KERNEL(argmax)
FIRN_KERNEL(argmin)
FIRN_KERNEL_WITH_WORKSPACE(extremum_backward)

}  // namespace firn::kernels
