// Contract of the kernels that move or make values without computing on them.
#pragma once

#include <cmath>

#include "kernels/dispatch.h"

namespace firn::kernels {

/// True if arange computes n numbers of an integer dtype in 64 bits: start and step are whole, and
/// no number overflows. All others are computed in f64, which is not exact beyond 2^53.
inline bool counts_whole(double start, double step, std::int64_t n) {
  constexpr double kMost = 0x1p62;
  return start == std::floor(start) && step == std::floor(step) && std::abs(start) <= kMost &&
         std::abs(step) * static_cast<double>(n) <= kMost;
}

namespace cpu {

/// dst = src, converted to dst's dtype as by cast() (firn/ops/ops.h). Both have one shape and any
/// strides. On the CPU, strides of src may also be negative.
void copy(const ConstView& src, const View& dst, Stream stream);
/// Sets every element to value, converted as in copy.
void fill(const View& dst, double value, Stream stream);
/// dst[i] = start + i*step; dst is 1-D.
void arange(const View& dst, double start, double step, Stream stream);
/// y = x in the lower or upper triangle of the last two axes, else 0. Columns j - i <= diagonal of
/// row i are the lower triangle, and j - i >= diagonal the upper one. y is contiguous.
void triangle(const ConstView& x, const View& y, bool lower, std::int64_t diagonal);
/// y is x between borders of its own elements, `before` of them on each axis. A border reflects x
/// (step -1), repeats its edge (0), or goes on from its other end (1). Both are contiguous.
void pad(const ConstView& x, const View& y, const Dims& before, int step);
/// dx = the gradient of x, summed as by gather_backward (index.h).
void pad_backward(const ConstView& dy, const View& dx, const Dims& before, int step);

}  // namespace cpu

FIRN_KERNEL_OF_ANY_DTYPE(copy, detail::moved_bytes)
FIRN_KERNEL_OF_ANY_DTYPE(fill, detail::moved_bytes)
FIRN_KERNEL(arange)
FIRN_KERNEL_CPU(triangle)
FIRN_KERNEL_CPU(pad)
FIRN_KERNEL_CPU(pad_backward)

}  // namespace firn::kernels
