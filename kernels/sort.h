// Contract of the kernel that sorts. All sorting of tensors goes through it: what sort(), argsort()
// and topk() return is gathered by the positions that it finds (kernels/index.h).
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// out (i64; x's shape, but for its size k <= x's at `axis`) = the positions along `axis` of the
/// first k elements of each line in ascending order, or in descending order. Equal elements keep
/// the order of their positions, in both. NaN is larger than all numbers, and -0 equals 0.
void sort_positions(const ConstView& x, const View& out, int axis, bool descending, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(sort_positions)

}  // namespace firn::kernels
