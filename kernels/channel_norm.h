// Contract of normalisation by channel. x is [n, c, l] (the axes after 1 merged into one), with any
// strides; row-major and channels-last (axis 1 fastest) are read in memory order. x is cut into
// cells, whose elements share a mean and a variance. With `per_sample` false, a cell is one channel
// over all samples (batch norm; groups = c). With true, there are n * groups cells, each of
// c/groups channels of one sample (group norm; instance norm with groups = c).
//
// Statistics and normalisation are separate kernels, and so are the two halves of the backward
// pass. So moments and sums may come from more samples than x has
// (nn::BatchNormMode::whole_batch). Statistics and sums have the compute dtype (f32, or
// f64 for f64) and are contiguous. Weight and bias [c] and all gradients have x's dtype or the
// compute dtype. A weight with data == nullptr is 1, such a bias 0. Running statistics may have any
// floating dtype. The order of sums depends on shape and format alone.
#pragma once

#include <cstdint>

#include "kernels/dispatch.h"

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

/// Writes for each channel the sums of dy and of dy (x - mean) / sqrt(var + eps) over its elements
/// in one cell. sums is [s, c, 2], with s = n if per_sample, else 1.
void channel_gradient_sums(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, double eps,
                           const View& sums, Stream stream);

/// dweight = beta*dweight + the second sums, dbias = beta*dbias + the first, over all samples. Both
/// are [c]; either may have data == nullptr. Each beta is 0 or 1.
void channel_parameter_gradients(const ConstView& sums, const View& dweight, float dweight_beta,
                                 const View& dbias, float dbias_beta, Stream stream);

/// dx = beta*dx + (weight*dy - a - xhat*b) / sqrt(var + eps). a and b are the cell's sums of weight
/// * sums, divided by `count`, the number of elements behind the cell's moments. If sums.data ==
/// nullptr, the moments are constants and a = b = 0.
void channel_data_gradient(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, const ConstView& weight,
                           double eps, const ConstView& sums, double count, const View& dx,
                           float beta, Stream stream);

/// Merges moments of `count` elements into the pool (Chan, Golub & LeVeque 1979). pooled [2, c]
/// f64: mean and sum of squared distances; pooled_count [1] f64.
void pool_moments(const ConstView& mean, const ConstView& var, double count, const View& pooled,
                  const View& pooled_count, Stream stream);

/// running = (1 - momentum) * running + momentum * pooled, for the mean and the unbiased variance.
/// The variance's divisor is count - 1, or count if that is 0. The pool is emptied (zeros).
/// momentum < 0 means 1 / (batches + 1), the mean over all batches so far. batches [1] i64 counts
/// them, or has data == nullptr. An empty pool changes nothing. `state` is a math::StepState in
/// device memory as u8, or has data == nullptr. If its last cycle was not applied, the pool is only
/// emptied.
void commit_moments(const View& pooled, const View& pooled_count, double momentum,
                    const ConstView& state, const View& running_mean, const View& running_var,
                    const View& batches, Stream stream);

/// Does what commit_moments() does for a pool that holds only these moments of `count` elements.
void update_moments(const ConstView& mean, const ConstView& var, double count, double momentum,
                    const View& running_mean, const View& running_var, const View& batches,
                    Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(channel_moments)
FIRN_KERNEL_WITH_WORKSPACE(channel_normalize)
FIRN_KERNEL_WITH_WORKSPACE(channel_gradient_sums)
FIRN_KERNEL_WITH_WORKSPACE(channel_parameter_gradients)
FIRN_KERNEL_WITH_WORKSPACE(channel_data_gradient)
FIRN_KERNEL(pool_moments)
FIRN_KERNEL(commit_moments)
FIRN_KERNEL(update_moments)

}  // namespace firn::kernels
