// Cycles that several ranks make together, each with all of the weights. A rank collects the
// gradients of its own samples; before the decision the sums become those of all ranks. So every
// rank decides and updates alike, and needs to know nothing else of the others.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dist/step/exchange.h"
#include "optim/impl.h"
#include "optim/step_extension.h"

namespace firn::optim {

class ReplicatedStep : public StepExtension {
 public:
  /// The step is made with these ranks, which may be this one alone. `number` is the optimizer's,
  /// the same on all ranks. No cycle is under way.
  ReplicatedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers,
                 std::int64_t number);

  const autograd::Peers& peers() const noexcept { return exchange_.peers(); }
  std::int64_t number() const noexcept { return number_; }
  /// How many cycles this rank has dropped since the last step.
  std::int64_t dropped() const noexcept { return call_.dropped; }
  void clear_dropped() noexcept { call_.dropped = 0; }

  autograd::StepRanks ranks() const noexcept override;
  void check_coupled(bool coupled) const override;
  void begin_micro_step() override;
  void run_micro_steps(std::int64_t count, const MicroSteps& micro_step) override;
  StepReport whole_call(const std::function<StepReport()>& call) override;
  void attempt(const std::function<void()>& micro_steps) override;
  void part_of_cycle(const std::function<void()>& part) override;
  bool may_try_again() const noexcept override { return !call_.ended_by_others; }
  void agree_to_retry(bool again) override;
  bool nothing_to_flush() override;
  void combine() override;
  void publish_weights() override;
  void cycle_ended() override;
  void drop_cycle() override;
  void announce(Event event, std::vector<std::uint8_t>& received) override;
  void end_exchange() override;
  void state_adopted() override;
  void add_cycle_of_all(std::vector<StateEntry>& state) override;
  std::string why_not_saved() const override;
  std::function<void()> keep() override;

 protected:
  /// The call under way, and what the other ranks know of it.
  struct Call {
    std::int64_t planned = 0;         ///< micro-steps of this rank's cycle; 0: not known
    std::int64_t most = 0;            ///< the most that a rank has planned
    bool begun = false;               ///< it has begun a cycle
    bool attempted = false;           ///< it makes a cycle, of which nothing may be there
    bool failure_told = true;         ///< no rank waits to hear how this rank's cycle went
    bool ended_by_others = false;     ///< when told of a failure, others had failed for good
    std::int64_t dropped = 0;         ///< cycles that this rank has dropped since the last step
    std::int64_t dropped_before = 0;  ///< the same when the call began
  };

  bool alone() const noexcept { return exchange_.alone(); }
  RankRecord record_of_cycle() const;
  RankRecord record_of_pass(autograd::Outcome outcome) const;
  /// RankExchange::tell().
  std::span<const RankRecord> tell(const RankRecord& record, std::span<std::uint8_t> flags);
  /// From now on other ranks wait for this one, and are to hear of its failure.
  void await_failure() noexcept;
  /// The failure keeps this rank from its next exchange: others throw there. A rank that is short
  /// of memory may try again by itself, but for the `last` time, unless ranks meet in each
  /// micro-step. Returns whether the others have been told.
  bool tell_failure(const std::exception_ptr& failure, bool last = false) noexcept;
  /// tell_failure() of a call that makes a cycle. The others drop the one that they are told of.
  /// This rank has done so, or never begun it, unless it has one that is still to be dropped.
  void end_for_others(const std::exception_ptr& failure, bool last) noexcept;
  /// Whether ranks exchange in each micro-step, so that none can try one again by itself.
  virtual bool meets_in_micro_steps() const noexcept { return false; }
  /// The gradients collected here, in `unit`, become those of all ranks in the unit `of_all`.
  virtual void add_gradients(double unit, double of_all);
  /// Copies of the gradients, in this rank's unit, become the sums of all ranks in the unit
  /// `of_all`.
  void add_copies(std::span<const Tensor> gradients, double of_all) const;
  void wait_for_exchange() const;
  const RankExchange& exchange() const noexcept { return exchange_; }

  Call call_;

 private:
  /// The cycle that was loaded is that of all ranks: rank 0 goes on with it, others have nothing.
  void leave_to_first_rank();
  void add_cycle_so_far(std::vector<StateEntry>& state, const std::vector<std::uint8_t>& received,
                        const CycleSums& all);

  RankExchange exchange_;
  std::int64_t number_;
};

}  // namespace firn::optim
