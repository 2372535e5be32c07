// Merges the moments of several batches and updates running statistics, for the BatchNorm layers of
// nn, and normalises parts of one batch. Updates of statistics are not recorded and do not wait for
// the device, and a graph can capture all of them.
#pragma once

#include "autograd/batch_parts.h"
#include "firn/ops/channel_norm.h"
#include "firn/view.h"

namespace firn::ops {

/// batch_norm() of a part of a batch, by the moments of the whole batch. The gradient flows through
/// them into all parts, so the parts exchange data in the forward pass and in the backward pass.
/// `layer` is that of BatchParts::Place. `moments` and `count`, the number of elements per channel,
/// are those of the batch. It runs on the CPU.
Tensor batch_norm_of_parts(autograd::BatchParts& parts,
                           const std::shared_ptr<const std::string>& layer, const Tensor& x,
                           const Tensor& weight, const Tensor& bias, double eps, Moments& moments,
                           double& count);

/// Merges moments [c] of `count` elements per channel into a pool (Chan, Golub & LeVeque 1979).
/// `pooled` [2, c] f64 has means and sums of squared deviations, `pooled_count` [1] f64 the number
/// of elements per channel. All are 0 in an empty pool.
void pool_moments(const Moments& moments, double count, const Tensor& pooled,
                  const Tensor& pooled_count);

/// running = (1 - momentum) running + momentum pooled, for the mean and the unbiased variance; then
/// empties the pool. momentum < 0: the mean over all commits so far. `batches`, an i64 scalar or
/// undefined, counts the commits. An empty pool changes nothing. `step_state` is an optimizer's
/// math::StepState in device memory, or ConstView{}. If its last cycle was not applied, the pool is
/// emptied and nothing else changes.
void commit_moments(const Tensor& pooled, const Tensor& pooled_count, double momentum,
                    const ConstView& step_state, const Tensor& running_mean,
                    const Tensor& running_var, const Tensor& batches);

/// Works as commit_moments() of a pool that has only these moments.
void update_moments(const Moments& moments, double count, double momentum,
                    const Tensor& running_mean, const Tensor& running_var, const Tensor& batches);

}  // namespace firn::ops
