// Contract of the kernels that read or write at positions held in a tensor. Index tensors are i64
// or i32, of any strides. An index outside its axis is an Error in the name of `op` that gives
// position, value and bound. The CPU throws it before it writes. A CUDA device notes it and goes on
// (firn/kernel_support.h): the host throws at its next wait; what is read there is NaN in floating dtypes
// and 0 in the others, and what would be added there is left out.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// out[i, :] = table[index[i], :]; table [n, d], index [m], out [m, d] of the table's dtype.
void take_rows(const char* op, const ConstView& table, const ConstView& index, const View& out,
               Stream stream);
/// grad[index[i], :] += dy[i, :], in the order of i; grad [n, d] is zeroed first where beta is 0.
/// Here and in gather_backward, grad and dy are of floating dtypes, not necessarily the same; sums
/// of many terms run in f64, of few in f32, and are rounded once. Both backends add what meets in
/// one place in order: their results are equal to the bit.
void add_rows(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
              float beta, Stream stream);
/// out[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`; index and out have one shape,
/// and off the axis their sizes are at most x's. An index repeated with stride 0 off the axis
/// selects whole slices.
void gather(const char* op, const ConstView& x, const ConstView& index, const View& out, int axis,
            Stream stream);
/// grad[..., index[..., j, ...], ...] += dy[..., j, ...], in the order of j; grad is zeroed first
/// where beta is 0.
void gather_backward(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                     int axis, float beta, Stream stream);
/// out [m, classes]: 1 at index[i], else 0.
void one_hot(const char* op, const ConstView& index, const View& out, Stream stream);

}  // namespace cpu

FIRN_KERNEL(take_rows)
FIRN_KERNEL(add_rows)
FIRN_KERNEL(gather)
FIRN_KERNEL(gather_backward)
FIRN_KERNEL(one_hot)

}  // namespace firn::kernels
