// Exact mode (StepOptions::exact) as an extension of the step: run_batch() cuts the batch into
// quanta, each one a micro-step of its own, and the end of the cycle adds them up in the tree.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/random.h"
#include "optim/exact/exact_sums.h"
#include "optim/step_extension.h"

namespace firn::optim {

class InterleavedQuanta;

class ExactStep final : public StepExtension {
 public:
  using StepExtension::StepExtension;

  ExactSums& sums() noexcept { return sums_; }
  /// How many quanta the batch of run_batch() has.
  std::int64_t quanta() const noexcept;

  void check_call(Call call) const override;
  void begin_micro_step() override;
  void run_pass(const Pass& pass) override;
  void run_micro_steps(std::int64_t count, const MicroSteps& micro_step) override;
  StepReport run_batch(Optimizer& optimizer, std::int64_t samples, std::int64_t size,
                       const LossOf& loss, const MicroSteps& between) override;
  void draw_for_cycle() noexcept override { sums_.draw_again(); }
  bool nothing_to_flush() override;
  void combine() override;
  void drop_cycle() override;
  void state_adopted() override;
  std::vector<StateEntry> entries_in_file() override;
  void add_cycle_of_all(std::vector<StateEntry>& state) override;
  std::string why_not_saved() const override;
  InBatch in_batch() const noexcept override;
  std::optional<RandomKey> random_of_cycle() const noexcept override { return sums_.random(); }
  std::function<void()> keep() override;

 private:
  friend class BackwardOfQuantum;
  friend class BetweenQuanta;

  void run_quanta(std::int64_t samples, const LossOf& loss, const MicroSteps& between);
  /// Runs quanta that need each other, because a layer normalises the whole batch.
  void run_interleaved(const ExactSums::Turns& turns, std::int64_t samples, const LossOf& loss,
                       const MicroSteps& between, const MicroSteps& after);
  /// Runs quantum q, the i-th of this rank, as a micro-step of its own: nothing of the ones before
  /// it is in its sums. `interleaved` computes it beside others, or is null.
  void run_quantum(std::int64_t q, std::int64_t samples, const LossOf& loss,
                   InterleavedQuanta* interleaved = nullptr, std::int64_t i = 0);
  /// Computes quantum q again, for a rank that computes none in a turn.
  Loss loss_of_quantum(std::int64_t q, std::int64_t samples, const LossOf& loss) const;
  /// Adds what was done of a batch to `state`, which becomes that before the batch.
  void add_batch(std::vector<StateEntry>& state, const ExactSums::Partial& partial) const;

  ExactSums sums_;
  bool in_quantum_ = false;  ///< the backward pass of a quantum is under way
  /// While MicroBatch::between is under way: where the random stream was at its begin.
  std::optional<RandomKey> between_;
};

/// Puts exact mode before what the list of the step's extensions has.
void add_exact_mode(OptimizerImpl& step);

}  // namespace firn::optim
