// Cycles of ranks that shard gradients (ZeRO stage 2), and weights (stage 3). Micro-steps are in
// lock-step. The ranks exchange records, run their passes, exchange buckets, and agree on the
// outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/step/bucket_layout.h"
#include "dist/step/bucket_sums.h"
#include "dist/step/buckets.h"
#include "dist/step/gathered.h"
#include "dist/step/replicated.h"

namespace firn::optim {

class ShardedStep final : public ReplicatedStep {
 public:
  /// The store must have sharded its gradients.
  ShardedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers, std::int64_t number);
  void begin() override;

  /// Converts the kept shards to another unit, or zeroes them if they hold nothing of this cycle.
  void express_shards(double from, double to);
  const RankExchange& exchange() const noexcept { return ReplicatedStep::exchange(); }
  const BucketLayout& layout() const noexcept { return layout_; }

  void before_pass(const std::function<void()>& fn) override;
  void run_pass(const Pass& pass) override;
  void idle_micro_step() override;
  void set_loss_of_others(std::function<Loss()> loss) override;
  /// After load_run() only rank 0 has the micro-steps of the cycle, and all have its calls.
  bool nothing_to_flush() override { return step.at.micro_steps == 0 && step.at.calls == 0; }
  void decide() override;
  math::GradientSummary summarize(const Tensor& of) override { return sums_->summarize(of); }
  void publish_weights() override;
  void drop_cycle() override;
  void announce(Event event, std::vector<std::uint8_t>& received) override;
  void take_over_weights() override;
  void extend_state(std::vector<StateEntry>& state) override;
  std::shared_ptr<void> hold_weights() override;

 protected:
  void stopped() noexcept override {
    if (weights_) weights_->forget_order();
  }
  bool exchanges_in_micro_steps() const noexcept override { return true; }
  void add_gradients(double unit, double of_all) override { express_shards(unit, of_all); }

 private:
  /// Runs one micro-step of every rank. `pass` is the backward pass from `output`; both may be
  /// empty. The shards kept so far are in `unit`. `of_others` says that this rank has no samples.
  /// If a rank fails, all throw.
  void run_with_others(const Tensor& output, double unit, const std::function<void()>& pass,
                       bool of_others = false);
  /// Runs a micro-step of a rank without samples. With sharded weights it runs the other ranks'
  /// program, and adds zeros.
  void run_for_others(double unit);
  /// Exchanges the records of this micro-step. Returns each rank's sums; `expected` becomes 1 where
  /// any rank's is.
  std::span<const CycleSums> exchange_of_pass(std::vector<std::uint8_t>& expected);
  void exchange_bucket(const Bucket& bucket, const Tensor& memory, bool of_others);
  /// Ends the exchanges of a pass. `failure` is this rank's failure in it, or null.
  void end_exchanges(std::exception_ptr failure);
  /// With sharded weights, compares the next exchange with the other ranks'. Throws on all ranks if
  /// one has failed.
  void agree(CyclePlace place, std::size_t what = 0);

  const BucketLayout layout_;
  GradientBuckets buckets_;
  std::unique_ptr<BucketSums> sums_;
  std::unique_ptr<WeightGatherer> weights_;  ///< null: weights are not sharded
  std::function<Loss()> loss_of_others_;     ///< for ranks without samples, with sharded weights
  std::vector<CycleSums> reported_;          ///< sums of each rank in this micro-step
  Tensor counted_;                           ///< u8 [parameters] of 1
};

}  // namespace firn::optim
