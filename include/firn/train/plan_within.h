// The size of micro-batches and what is computed again, under one budget of memory:
//
//   const optim::BatchPlan plan =
//       optim::plan_within(512 << 20, opt, net, 1024, loss, {.least_micro_batch = 32});
//   for (...) opt.run_batch(1024, {.size = plan.micro_batch}, loss);
//
// MicroBatch::within() (optim/micro_batch.h) plans the size alone, nn::checkpoint_within() the
// checkpoints alone.
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
  /// Micro-batches are not cut smaller than this while blocks could keep less instead. Take a size
  /// that keeps the device busy: below it, more and smaller micro-batches take longer.
  std::int64_t least_micro_batch = 1;
  /// As MicroBatch::split_statistics. Without it, a batch whose samples a layer normalises together
  /// stays whole, and only the checkpoints are planned.
  bool split_statistics = false;
};

/// What plan_within() has found.
struct BatchPlan {
  std::int64_t micro_batch = 0;      ///< samples; run_batch() takes it as MicroBatch::size
  nn::BlockCheckpoints checkpoints;  ///< what is set in the model
  std::size_t peak = 0;              ///< bytes in use at the peak of a cycle
};

/// "micro-batches of 64, every block keeps its inputs and products: 410 MiB at the peak".
std::string to_string(const BatchPlan& plan);

/// Plans cycles of `samples` samples by shapes alone (plan_memory()) and sets checkpoints of the
/// blocks of `net` (nn::checkpoint_blocks(), which says what a block is). Of the policies, from
/// that which computes least to that which keeps least, it takes the first with which micro-batches
/// of `least_micro_batch` samples or more have a peak within `budget` bytes, and the largest such
/// size. If there is none, it takes the policy that allows the largest micro-batches.
///
/// `loss` is that of run_batch(), and computes with `net`. The budget counts bytes in use on the
/// optimizer's device, all owners. Nothing but the checkpoints is changed.
///
/// Throws OutOfMemory if no policy has a size that fits, with the smallest peak; Error if `net` has
/// no blocks, if a cycle is under way, and as run_batch() and plan_memory() do. All is then as
/// before.
BatchPlan plan_within(std::size_t budget, Optimizer& optimizer, nn::Module& net,
                      std::int64_t samples,
                      const std::function<Loss(std::int64_t first, std::int64_t last)>& loss,
                      const PlanOptions& options = {});
/// The error of a function that returns a tensor says what to return.
template <detail::GivesTensor<std::int64_t, std::int64_t> Fn>
BatchPlan plan_within(std::size_t, Optimizer&, nn::Module&, std::int64_t, const Fn&,
                      const PlanOptions& = {}) {
  detail::refuse_tensor_as_loss<Fn>();
}

}  // namespace firn::optim
