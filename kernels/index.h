// Contract of the kernels that read or write at positions held in a tensor. Index tensors are i64
// or i32. Every one throws Error, before it writes, on an index outside its axis.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// out[i, :] = table[index[i], :]; table [n, d], index [m], out [m, d].
void take_rows(const ConstView& table, const ConstView& index, const View& out, Stream stream);
/// grad[index[i], :] += dy[i, :], in the order of i; grad [n, d] is zeroed first where beta is 0.
void add_rows(const ConstView& dy, const ConstView& index, const View& grad, float beta,
              Stream stream);
/// out[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`; index and out have one shape.
void gather(const ConstView& x, const ConstView& index, const View& out, int axis, Stream stream);
/// grad[..., index[..., j, ...], ...] += dy[..., j, ...]; grad is zeroed first where beta is 0.
void gather_backward(const ConstView& dy, const ConstView& index, const View& grad, int axis,
                     float beta, Stream stream);
/// out [m, classes]: 1 at index[i], else 0.
void one_hot(const ConstView& index, const View& out, Stream stream);

}  // namespace cpu

FIRN_KERNEL_CPU(take_rows)
FIRN_KERNEL_CPU(add_rows)
FIRN_KERNEL_CPU(gather)
FIRN_KERNEL_CPU(gather_backward)
FIRN_KERNEL_CPU(one_hot)

}  // namespace firn::kernels
