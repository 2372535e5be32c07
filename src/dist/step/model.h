// Ranks that have the rest of an optimizer's model: other shards of its parameters, or other
// layers. Each updates its own parameters. The norm for clipping and the decision on the step are
// shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "dist/step/replicated.h"
#include "kernels/math/optim/step_state.h"
#include "optim/store/param_store.h"

namespace firn::optim {

/// The record that a rank sends to the others of its model before the decision: its point in the
/// cycle, and summaries of its gradients. `divided` summarises sharded parameters, and `whole`
/// those that every rank of its stage has.
struct ModelRecord {
  std::int64_t optimizer = 0, cycles = 0, dropped = 0, micro_steps = 0;
  double rate = 0, scale = 1, unit = 1, weight = 0, loss = 0;
  math::GradientSummary sharded = {}, whole = {};
};

class ModelRanks {
 public:
  /// `peers` are the ranks of one copy of the model: stage after stage, with `parts` ranks each.
  /// `divided` is 1 for each parameter of which this rank has a shard. `device` is the parameters'
  /// device. Allocates the memory that a decision needs.
  ModelRanks(std::shared_ptr<const autograd::Peers> peers, int parts,
             std::vector<std::uint8_t> sharded, Device device);

  const autograd::Peers& peers() const noexcept { return *peers_; }
  /// Returns "part 1 of 2 of stage 0 of 3".
  std::string place() const;
  /// u8 [parameters], on the device: 1 for sharded parameters.
  const Tensor& sharded() const noexcept { return sharded_; }
  const Tensor& whole() const noexcept { return whole_; }  ///< 1 for the others

  /// Sends the record, and returns the summary of the whole model: all shards count, and other
  /// parameters once per stage. It has the same bits on every rank, except for the culprit, which
  /// is a parameter of this rank's stage, or `elsewhere`. Throws Error on every rank if the ranks
  /// are at different points.
  math::GradientSummary exchange_records(const std::string& op, const ModelRecord& record);

 private:
  std::shared_ptr<const autograd::Peers> peers_;
  int parts_;
  Tensor sharded_, whole_;
  Tensor mine_, all_;  ///< u8: one record, and those of all ranks
  std::vector<ModelRecord> records_;
};

/// The step of such a rank. `copies` makes the step with the ranks that have copies of its part, if
/// any.
class ModelStep final : public StepExtension {
 public:
  ModelStep(OptimizerImpl& of, std::unique_ptr<ReplicatedStep> copies, ModelRanks model)
      : StepExtension(of, std::move(copies)), model_(std::move(model)) {}

  const ModelRanks& model() const noexcept { return model_; }

  autograd::StepRanks ranks() const noexcept override;
  std::string place() const override { return model_.place(); }
  void decide() override;

 private:
  ModelRanks model_;
};

}  // namespace firn::optim
