// Contract of normalisation by channel. x is [n, c, l] (the axes after 1 taken as one), with any
// strides; row-major and channels-last (axis 1 fastest) are read in the order of memory. x is cut
// in cells, whose elements share a mean and a variance: `per_sample` false, one cell a channel,
// over all samples (batch norm; groups = c); true, n * groups cells of c/groups channels of a
// sample (group norm; instance norm with groups = c).
//
// Statistics and normalisation are kernels of their own, and so are the two halves of the backward
// pass: moments and sums may come from elsewhere, from more samples than x has
// (docs/proposals/batch-norm-over-a-cycle.md). Statistics and sums are in the compute dtype (f32, or f64 for
// f64), without gaps; weight and bias [c] and all gradients in x's or the compute dtype; a weight
// or bias may have data == nullptr (1 and 0). Running statistics may have any floating dtype.
// Order of sums: by shape and format alone.
#pragma once

#include <cstdint>

#include "kernels/plan/step_memory.h"

namespace firn::kernels {

struct NormCells {
  std::int64_t groups = 1;
  bool per_sample = false;
};

namespace cpu {

/// mean and biased variance of each cell, [cells]; the variance is a sum of squared distances from
/// the mean (no difference of large numbers).
void channel_moments(const ConstView& x, NormCells cells, const View& mean, const View& var,
                     Stream stream);

/// y = (x - mean) / sqrt(var + eps) * weight + bias. y has x's shape and dtype.
void channel_normalize(const ConstView& x, NormCells cells, const ConstView& mean,
                       const ConstView& var, const ConstView& weight, const ConstView& bias,
                       double eps, const View& y, Stream stream);

/// sums [s, c, 2], s = n where per_sample, else 1: the sums of dy, and of dy (x - mean) / sqrt(var
/// + eps), over what of a channel lies in one cell.
void channel_gradient_sums(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, double eps,
                           const View& sums, Stream stream);

/// dweight = beta*dweight + the second sums, dbias = beta*dbias + the first, over all samples.
/// [c], either may have data == nullptr; each beta is 0 or 1.
void channel_parameter_gradients(const ConstView& sums, const View& dweight, float dweight_beta,
                                 const View& dbias, float dbias_beta, Stream stream);

/// dx = beta*dx + (weight*dy - a - xhat*b) / sqrt(var + eps), where a and b are a cell's sums of
/// weight * sums, over `count`, the number of elements the cell's moments came from. sums.data ==
/// nullptr: the moments are constants, a = b = 0.
void channel_data_gradient(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, const ConstView& weight,
                           double eps, const ConstView& sums, double count, const View& dx,
                           float beta, Stream stream);

/// Merges moments of `count` elements into pooled ones (Chan, Golub & LeVeque 1979). pooled [2, c]
/// f64: mean and sum of squared distances; pooled_count [1] f64.
void pool_moments(const ConstView& mean, const ConstView& var, double count, const View& pooled,
                  const View& pooled_count, Stream stream);

/// running = (1 - momentum) * running + momentum * pooled, for the mean and the unbiased variance
/// (divisor count - 1; count where that is 0), and pooled becomes empty (zeros). momentum < 0: the
/// mean over all batches so far: 1 / (batches + 1). batches [1] i64 counts them; data == nullptr:
/// none. An empty pool changes nothing. `state`, a math::StepState in device memory as u8 (or data
/// == nullptr): where its last cycle was not applied, only the pool is emptied.
void commit_moments(const View& pooled, const View& pooled_count, double momentum,
                    const ConstView& state, const View& running_mean, const View& running_var,
                    const View& batches, Stream stream);

/// commit_moments of a pool that holds these moments of `count` elements alone.
void update_moments(const ConstView& mean, const ConstView& var, double count, double momentum,
                    const View& running_mean, const View& running_var, const View& batches,
                    Stream stream);

}  // namespace cpu

FIRN_KERNEL(channel_moments)
FIRN_KERNEL(channel_normalize)
FIRN_KERNEL(channel_gradient_sums)
FIRN_KERNEL(channel_parameter_gradients)
FIRN_KERNEL(channel_data_gradient)
FIRN_KERNEL(pool_moments)
FIRN_KERNEL(commit_moments)
FIRN_KERNEL(update_moments)

}  // namespace firn::kernels
