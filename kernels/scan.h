// Contract of the scans: each element of the result depends on the elements of its line up to its
// own place. Every view has one shape. Values are computed in the compute dtype and rounded once.
// Lines are cut by shape and strides alone, so the bits are the same for any number of threads.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/fold.h"

namespace firn::kernels {

#define FIRN_SCAN_OP(name, scan, integers) name,
enum class ScanOp { FIRN_SCANS(FIRN_SCAN_OP) };
#undef FIRN_SCAN_OP

namespace cpu {

/// out = beta*out + the scan of x along `axis`, from its end if `reverse`. x and out have one
/// compute dtype, but integers may be scanned into i64 only. beta is 0 for integers.
void scan(ScanOp op, const ConstView& x, const View& out, int axis, bool reverse, float beta,
          Stream stream);
/// Writes values (x's dtype) and positions (i64) of the largest (or smallest) element of each line
/// so far. A later element wins if it is equal, and NaN wins over all numbers.
void scan_extremum(bool largest, const ConstView& x, const View& values, const View& positions,
                   int axis, Stream stream);
/// out[i] = b[i] + a[i] out[i + 1] along `axis`, with out[n] = 0; floating dtypes of one compute
/// dtype.
void scan_linear(const ConstView& a, const ConstView& b, const View& out, int axis, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(scan)
FIRN_KERNEL_WITH_WORKSPACE(scan_extremum)
FIRN_KERNEL_WITH_WORKSPACE(scan_linear)

}  // namespace firn::kernels
