#include "firn/train/plan_within.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/memory.h"
#include "firn/ops/losses.h"
#include "nn/checkpoint_policies.h"
#include "optim/calls/cycle_planner.h"
#include "optim/inside.h"

namespace firn::optim {
namespace {

constexpr const char* kOp = "plan_within";

/// The smallest peak that was found, and a text about it.
struct Least {
  std::size_t peak = 0;
  std::string text;
};

}  // namespace

std::string to_string(const BatchPlan& plan) {
  return fmt::format("micro-batches of {}, {}: {} at the peak", plan.micro_batch,
                     nn::to_string(plan.checkpoints), bytes_to_string(plan.peak));
}

BatchPlan plan_within(std::size_t budget, Optimizer& optimizer, nn::Module& net,
                      std::int64_t samples, const LossOf& loss, const PlanOptions& options) try {
  FIRN_CHECK(samples >= 1, kOp, "give 1 or more", "a batch of {} samples", samples);
  require_function(kOp, loss, "give a function that computes the loss of samples [first, last)");
  FIRN_CHECK(options.least_micro_batch >= 1, kOp, "1 is the least", "micro-batches of {} samples",
             options.least_micro_batch);
  require_no_cycle(optimizer, "plan_within()");
  nn::detail::BlockSettings blocks(net);
  CyclePlanner planner(optimizer, samples, budget, options.split_statistics, loss);
  const std::int64_t least = std::min(options.least_micro_batch, samples);
  BatchPlan best;
  Least smallest;
  // Tries sizes of `least` or more first, then any size.
  for (const std::int64_t from : {least, std::int64_t{1}}) {
    for (const nn::BlockCheckpoints& policy : nn::detail::kFromFastest) {
      blocks.set(policy);
      const std::int64_t size = planner.largest(from);
      if (size > best.micro_batch) best = {size, policy, planner.fitting().peak};
      if (size >= least) break;
      if (size == 0 && (smallest.peak == 0 || planner.last().peak < smallest.peak))
        smallest = {planner.last().peak,
                    fmt::format("if {}, {}", nn::to_string(policy), planner.why_not())};
    }
    if (best.micro_batch > 0 || least == 1) break;
  }
  if (best.micro_batch == 0)
    throw OutOfMemory(smallest.text, smallest.peak,
                      "give a larger budget, compute under Autocast, keep states in 8 bits, or "
                      "shard them over ranks (DistributeOptions::zero)");
  blocks.set(best.checkpoints);
  blocks.keep();
  return best;
}
FIRN_OUT_OF_MEMORY("plan_within")

}  // namespace firn::optim
