// Contract of the kernels that move or make values without computing on them.
#pragma once

#include <cmath>

#include "firn/random.h"
#include "kernels/dispatch.h"

namespace firn::kernels {

/// Whether arange counts n numbers of an integer dtype in 64 bits: both are whole, and no number
/// leaves 64 bits. Beyond 2^53 they would not fit f64, in which all others are computed.
inline bool counts_whole(double start, double step, std::int64_t n) {
  constexpr double kMost = 0x1p62;
  return start == std::floor(start) && step == std::floor(step) && std::abs(start) <= kMost &&
         std::abs(step) * static_cast<double>(n) <= kMost;
}

namespace cpu {

/// dst = src, cast to dst's dtype as cast() in firn/ops.h says. Same shape, any strides.
void copy(const ConstView& src, const View& dst, Stream stream);
/// Every element = value, converted as in copy.
void fill(const View& dst, double value, Stream stream);
/// dst[i] = start + i*step; dst is 1-D.
void arange(const View& dst, double start, double step, Stream stream);
/// Uniform in [low, high); dst is row-major, and element i takes word i of the stream (random.h).
/// The bits are the same on every backend, as are those of dropout with beta 0; normal numbers are
/// equal to rounding. On a CUDA device a key may have a base, on the CPU it has none.
void uniform(const View& dst, double low, double high, RandomKey key, Stream stream);
/// Normal by Box-Muller; dst is row-major, elements 2i and 2i+1 come from words 2i and 2i+1.
void normal(const View& dst, double mean, double stddev, RandomKey key, Stream stream);
/// y = beta*y + (word i of the stream kept ? x/(1-p) : 0). Forward with beta 0; the same call on
/// the gradient is the backward. Both lie in one order (in_one_order()), in which elements
/// are counted, and are of one compute dtype.
void dropout(const ConstView& x, const View& y, double p, RandomKey key, float beta, Stream stream);

}  // namespace cpu

FIRN_KERNEL(copy)
FIRN_KERNEL(fill)
FIRN_KERNEL(arange)
FIRN_KERNEL(uniform)
FIRN_KERNEL(normal)
FIRN_KERNEL(dropout)

}  // namespace firn::kernels
