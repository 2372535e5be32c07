// Contract of the kernels that sort, and that search a sorted list. All sorting of tensors goes
// through it: sort(), argsort() and topk() gather their results by the positions that it finds
// (kernels/index.h).
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// out = the positions along `axis` of the first k elements of each line in ascending order, or in
/// descending order. It is i64, and has x's shape, except for size k <= x's at `axis`. Equal
/// elements keep the order of their positions, in both. NaN is larger than all numbers, and -0
/// equals 0.
void sort_positions(const ConstView& x, const View& out, int axis, bool descending, Stream stream);
/// places[i] (i64) = the bin of x[i] among ascending edges [bins + 1]: a bin holds its lower edge,
/// and the last one both. It is `bins` if x[i] is outside all bins, or NaN. Lists have no gaps; x
/// and edges have one dtype, f32 or f64.
void find_bins(const ConstView& x, const ConstView& edges, const View& places, Stream stream);
/// out[r, i] (i64) = number of elements of sorted[r, :], ascending, that are less than values[r,
/// i], or with `after` not greater, in the order of sort_positions. All are row-major: sorted
/// [rows, n], or [1, n] for all rows; values and out [rows, m]. Both operands have one dtype.
void find_places(const ConstView& sorted, const ConstView& values, const View& out, bool after,
                 Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(sort_positions)
FIRN_KERNEL(find_bins)
FIRN_KERNEL(find_places)

}  // namespace firn::kernels
