// The sums of all ranks' gradients under ZeRO stage 2, bucket by bucket. Each rank keeps its shard
// of a sum. The order of the additions is that of the ranks, or the tree of exact mode.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dist/step/bucket_layout.h"
#include "dist/step/exchange.h"
#include "optim/access.h"

namespace firn::optim {

class ShardedStep;

/// A function that needs memory while other ranks wait has a counterpart that allocates it before.
class BucketSums {
 public:
  virtual ~BucketSums() = default;
  /// Begins a micro-step of all ranks. `reported` has the scalars of each rank, and is empty in a
  /// plan. The shards kept so far are in `unit`.
  virtual void begin(std::span<const CycleSums> reported, double unit) = 0;
  /// Allocates what take() needs.
  virtual void prepare(const Bucket& bucket, const Tensor& gradients) = 0;
  /// Adds up all ranks' gradients of a bucket (undefined: zeros). Each rank keeps its shard.
  virtual void take(const Bucket& bucket, const Tensor& gradients) = 0;
  /// Ends the micro-step, after all its buckets.
  virtual void end() = 0;
  /// Allocates what summarize() needs.
  virtual void prepare_summary() {}
  /// See StepExtension::summarize().
  virtual math::GradientSummary summarize(const Tensor& of) = 0;
};

/// Makes the sums of a step: in the tree if it has exact mode, else in the order of the ranks.
std::unique_ptr<BucketSums> make_bucket_sums(OptimizerImpl& step, ShardedStep& ranks);

}  // namespace firn::optim
