// Cycles of ranks that shard gradients (ZeRO stage 2), and weights (stage 3). Micro-steps are in
// lock-step: the ranks tell each other where they are, run their passes, exchange buckets, and
// agree on how that went.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/step/buckets.h"
#include "dist/step/gathered.h"
#include "dist/step/replicated.h"

namespace firn::optim {

/// How the gradients of all ranks are added up, bucket by bucket.
class BucketSums {
 public:
  virtual ~BucketSums() = default;
  /// A micro-step of all ranks begins, whose sums were told; none were in a plan. What is kept so
  /// far is in `unit`.
  virtual void begin(std::span<const CycleSums> told, double unit) = 0;
  /// Adds up every rank's gradients of a bucket (undefined: zeros), of which each keeps its shard.
  virtual void take(const ParamStore::Bucket& bucket, const Tensor& gradients) = 0;
  /// All buckets were there.
  virtual void end() = 0;
  /// See StepExtension::summarize().
  virtual math::GradientSummary summarize(const Tensor& of) = 0;
};

class ShardedStep final : public ReplicatedStep {
 public:
  /// The store has sharded its state.
  ShardedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers, std::int64_t number);

  /// The sums that are kept are expressed in another unit, or begin with zeros.
  void express_shards(double from, double to);
  const RankExchange& exchange() const noexcept { return ReplicatedStep::exchange(); }

  void run_pass(const Pass& pass) override;
  void idle_micro_step() override;
  void set_loss_of_others(std::function<Loss()> loss) override;
  bool nothing_to_flush() override { return step.at.micro_steps == 0; }
  void decide() override;
  math::GradientSummary summarize(const Tensor& of) override { return sums_->summarize(of); }
  void publish_weights() override;
  void drop_cycle() override;
  void take_over_weights() override;
  void extend_state(std::vector<StateEntry>& state) override;
  std::shared_ptr<void> hold_weights() override;

 protected:
  bool meets_in_micro_steps() const noexcept override { return true; }
  void add_gradients(double unit, double of_all) override { express_shards(unit, of_all); }

 private:
  /// One micro-step of every rank. `pass` is the backward pass from `output`; both may be empty.
  /// What is kept so far is in `unit`. `of_others`: this rank has no samples. If a rank fails, all
  /// throw.
  void run_with_others(const Tensor& output, double unit, const std::function<void()>& pass,
                       bool of_others = false);
  /// The same of a rank without samples. If weights are sharded, it runs what others run, and adds
  /// zeros.
  void run_for_others(double unit);
  /// Tells the others of this micro-step. Returns the sums of each; `expected` becomes that of all.
  std::vector<CycleSums> tell_of_pass(std::vector<std::uint8_t>& expected);
  void exchange_bucket(const ParamStore::Bucket& bucket, const Tensor& memory, bool of_others);
  /// Ends the exchange of a pass which has failed here, or (null) not.
  void end_exchanges(const std::exception_ptr& failure);
  /// With sharded weights: the ranks tell each other what comes next, or that one has failed. Then
  /// all throw.
  void meet(CyclePlace place, std::size_t what = 0);

  GradientBuckets buckets_;
  std::unique_ptr<BucketSums> sums_;
  std::unique_ptr<GatheredWeights> weights_;  ///< null: weights are not sharded
  std::function<Loss()> loss_of_others_;      ///< with sharded weights: for ranks without samples
  Tensor counted_;                            ///< u8 [parameters] of 1
};

}  // namespace firn::optim
