// Moments of several batches merged into one set, and running statistics: what nn's batch norm does
// with what batch_norm() hands out. Nothing is recorded, nothing waits for the device, and all of
// it can be captured in a graph.
#pragma once

#include "firn/channel_norm.h"
#include "firn/view.h"

namespace firn::ops {

/// Merges moments [c] of `count` elements a channel into a pool (Chan, Golub & LeVeque 1979):
/// `pooled` [2, c] f64, means and sums of squared distances from them, and `pooled_count` [1] f64,
/// the elements of a channel that they come from. All zeros where it is empty.
void pool_moments(const Moments& moments, double count, const Tensor& pooled,
                  const Tensor& pooled_count);

/// running = (1 - momentum) running + momentum pooled, for the mean and the unbiased variance, and
/// the pool is empty again; momentum < 0: the mean over all commits so far. `batches`, an i64 [1]
/// or undefined, counts the commits. An empty pool changes nothing. `step_state`: an optimizer's
/// math::StepState in device memory, or ConstView{}: where the cycle that it finished last was not
/// applied, the pool is emptied and nothing else changes.
void commit_moments(const Tensor& pooled, const Tensor& pooled_count, double momentum,
                    const ConstView& step_state, const Tensor& running_mean,
                    const Tensor& running_var, const Tensor& batches);

/// commit_moments of a pool that holds these moments alone.
void update_moments(const Moments& moments, double count, double momentum,
                    const Tensor& running_mean, const Tensor& running_var, const Tensor& batches);

}  // namespace firn::ops
