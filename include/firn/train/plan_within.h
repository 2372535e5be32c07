// Plans the size of micro-batches and the recomputation under one budget of memory:
//
//   const optim::BatchPlan plan =
//       optim::plan_within(512 << 20, opt, net, 1024, loss, {.least_micro_batch = 32});
//   for (...) opt.run_batch(1024, {.size = plan.micro_batch}, loss);
//
// MicroBatch::within() (optim/micro_batch.h) plans only the size, and nn::checkpoint_within() only
// the checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "firn/memory/plan.h"
#include "firn/nn/checkpoint.h"
#include "firn/optim/loss_function.h"

namespace firn {
struct Loss;
}

namespace firn::optim {

class Optimizer;

struct PlanOptions {
  /// Smallest micro-batch, as long as blocks could keep less instead. Take a size that keeps the
  /// device busy: below it, more and smaller micro-batches take longer.
  std::int64_t least_micro_batch = 1;
  /// See MicroBatch::split_statistics. If false, and a layer normalises samples together, the batch
  /// stays whole, and only the checkpoints are planned.
  bool split_statistics = false;
};

/// Result of plan_within().
struct BatchPlan {
  std::int64_t micro_batch = 0;      ///< number of samples, for MicroBatch::size
  nn::BlockCheckpoints checkpoints;  ///< checkpoints that are set in the model
  std::size_t peak = 0;              ///< bytes in use at the peak of a cycle
};

/// Returns "micro-batches of 64, every block keeps its inputs and products: 410 MiB at the peak".
std::string to_string(const BatchPlan& plan);

/// Plans cycles of `samples` samples by shapes alone (plan_memory()). Sets checkpoints of the
/// blocks of `net` (nn::checkpoint_blocks(), which says what a block is). It tries the policies in
/// order, from the one that recomputes least to the one that keeps least. It takes the first with
/// which micro-batches of at least `least_micro_batch` samples have a peak within `budget` bytes,
/// and the largest such size. If no policy fits, it takes the policy that allows the largest
/// micro-batches.
///
/// `loss` is the function of run_batch(), and computes with `net`. The budget counts bytes in use
/// on the optimizer's device, of all owners. Only the checkpoints change.
///
/// Throws OutOfMemory, with the smallest peak, if no policy has a size that fits. Throws Error if
/// `net` has no blocks, if a cycle has begun, and as run_batch() and plan_memory() do. Nothing is
/// changed then.
BatchPlan plan_within(std::size_t budget, Optimizer& optimizer, nn::Module& net,
                      std::int64_t samples,
                      const std::function<Loss(std::int64_t first, std::int64_t last)>& loss,
                      const PlanOptions& options = {});
/// Refuses, at compile time, a loss that returns a tensor; the error says what to return.
template <detail::GivesTensor<std::int64_t, std::int64_t> Fn>
BatchPlan plan_within(std::size_t, Optimizer&, nn::Module&, std::int64_t, const Fn&,
                      const PlanOptions& = {}) {
  detail::refuse_tensor_as_loss<Fn>();
}

}  // namespace firn::optim
