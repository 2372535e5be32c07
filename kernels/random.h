// Contract of the kernels that draw random numbers. Word i of a stream belongs to element i
// (firn/random.h), so the result does not depend on threads or blocks. Uniform numbers and dropout
// with beta 0 have the same bits on every backend; normal numbers are equal to rounding. On a CUDA
// device a key may have a base, on the CPU it may not.
#pragma once

#include "firn/random.h"
#include "kernels/dispatch.h"

namespace firn::kernels {
namespace cpu {

/// Draws uniformly from [low, high). dst is row-major; element i takes word i.
void uniform(const View& dst, double low, double high, RandomKey key, Stream stream);
/// Draws normal numbers by Box-Muller. dst is row-major; elements 2i and 2i+1 come from words 2i
/// and 2i+1.
void normal(const View& dst, double mean, double stddev, RandomKey key, Stream stream);
/// y = beta*y + (word i keeps the element ? x/(1-p) : 0). The forward pass has beta 0; the same
/// call on the gradient is the backward pass. x and y share a compute dtype and a memory order
/// (in_one_order()), which numbers the elements.
void dropout(const ConstView& x, const View& y, double p, RandomKey key, float beta, Stream stream);

}  // namespace cpu

FIRN_KERNEL(uniform)
FIRN_KERNEL(normal)
FIRN_KERNEL(dropout)

}  // namespace firn::kernels
