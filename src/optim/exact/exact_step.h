// Exact mode (StepOptions::exact) as an extension of the step. run_batch() cuts the batch into
// chunks of `exact.chunk` samples and computes each in a micro-step of its own. The end of the
// cycle adds their gradients in a fixed tree.
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

class InterleavedChunks;

class ExactStep final : public StepExtension {
 public:
  using StepExtension::StepExtension;

  ExactSums& sums() noexcept { return sums_; }
  /// Number of chunks in the batch of run_batch().
  std::int64_t chunks() const noexcept;

  void check_call(Call call) const override;
  void begin_micro_step() override;
  void run_pass(const Pass& pass) override;
  void run_micro_steps(std::int64_t count, const MicroSteps& micro_step) override;
  StepReport run_batch(std::int64_t samples, std::int64_t size, const LossOf& loss,
                       const MicroSteps& between) override;
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
  friend class BackwardOfChunk;
  friend class BetweenChunks;

  void run_chunks(std::int64_t samples, const LossOf& loss, const MicroSteps& between);
  /// Runs chunks that need each other, because a layer normalises the whole batch.
  void run_interleaved(const ExactSums::LockStep& lock_step, std::int64_t samples,
                       const LossOf& loss, const MicroSteps& between, const MicroSteps& after);
  /// Computes chunk q, the i-th one of this rank, in a micro-step whose sums contain no earlier
  /// chunk. `interleaved` is the object that interleaves it with other chunks, or null.
  void run_chunk(std::int64_t q, std::int64_t samples, const LossOf& loss,
                 InterleavedChunks* interleaved = nullptr, std::int64_t i = 0);
  /// Computes the loss of chunk q again, for a rank that has no chunk in a padding micro-step.
  Loss loss_of_chunk(std::int64_t q, std::int64_t samples, const LossOf& loss) const;
  /// Changes `state` into the one before the batch, and adds the finished part of the batch.
  void add_batch(std::vector<StateEntry>& state, const ExactSums::Partial& partial) const;

  ExactSums sums_;
  bool in_chunk_ = false;  ///< true while the backward pass of a chunk is running
  /// Random stream before MicroBatch::between, while that is running.
  std::optional<RandomKey> between_;
};

/// Puts exact mode at the beginning of the step's list of extensions.
void add_exact_mode(OptimizerImpl& step);

}  // namespace firn::optim
