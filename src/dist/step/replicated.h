// Cycles of several ranks, each of which has all of the weights. A rank collects the gradients of
// its own samples. Before the decision the gradients are summed over all ranks. So every rank makes
// the same decision and update, and needs to know nothing else of the others.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dist/step/exchange.h"
#include "dist/step/shards.h"
#include "optim/impl.h"
#include "optim/step_extension.h"

namespace firn::optim {

class ReplicatedStep : public StepExtension {
 public:
  /// `peers` are the ranks of the step, and may be this one alone. `number` identifies the
  /// optimizer and is equal on all ranks. No cycle may be under way. The store must have sharded
  /// its state, if that is to be sharded.
  ReplicatedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers,
                 std::int64_t number);
  /// Called once this is the optimizer's step, and the store has its values. Allocates nothing.
  virtual void begin() { step.now.sums_before = step.loss_sums(); }

  const autograd::Peers& peers() const noexcept { return exchange_.peers(); }
  std::int64_t number() const noexcept { return number_; }
  /// Number of cycles that this rank has dropped since the last step.
  std::int64_t dropped() const noexcept { return call_.dropped; }
  void clear_dropped() noexcept { call_.dropped = 0; }

  autograd::StepRanks ranks() const noexcept override;
  void check_coupled(bool coupled) const override;
  void begin_micro_step() override;
  void run_micro_steps(std::int64_t count, const MicroSteps& micro_step) override;
  StepReport whole_call(const std::function<StepReport()>& call) override;
  void attempt(const std::function<void()>& micro_steps) override;
  void part_of_cycle(const std::function<void()>& part) override;
  void cycle_drawn() noexcept override {
    if (!runtime::dry_run()) call_.begun = true;
  }
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
  void gather_entries(std::vector<StateEntry>& state) override;
  std::vector<Tensor> gather_arenas(std::vector<Tensor> parts, bool to_all) override;
  void add_cycle_of_all(std::vector<StateEntry>& state) override;
  std::string why_not_saved() const override;
  std::function<void()> keep() override;

 protected:
  /// The call under way, and what the other ranks know about it.
  struct Call {
    std::int64_t planned = 0;      ///< micro-steps of this rank's cycle; 0: not known
    std::int64_t most = 0;         ///< largest `planned` of any rank
    bool begun = false;            ///< true if this rank has drawn the cycle's random numbers
    bool attempted = false;        ///< true if it makes a cycle, which may be empty so far
    bool failure_reported = true;  ///< true if no rank waits for the outcome of this rank's cycle
    bool exchanged = false;        ///< gradients are sums of all ranks already, scalars are not
    bool ended_by_others = false;  ///< others had failed for good when this rank reported
    std::int64_t dropped = 0;      ///< cycles that this rank has dropped since the last step
    std::int64_t dropped_before = 0;  ///< `dropped` when the call began
    bool drop_known = false;  ///< all ranks were at different points, and drop what they have
  };

  bool alone() const noexcept { return exchange_.alone(); }
  /// Returns true if this rank has a cycle that can be dropped.
  bool has_cycle() const noexcept {
    return step.at.length > 0 || step.now.failed() || call_.attempted;
  }
  RankRecord record_of_cycle() const;
  RankRecord record_of_pass(autograd::Outcome outcome) const;
  /// Calls RankExchange::exchange_records().
  std::span<const RankRecord> exchange_records(const RankRecord& record,
                                               std::span<std::uint8_t> flags = {});
  /// From now on other ranks wait for this one, so it must report a failure to them.
  void await_failure() noexcept;
  /// Reports a failure that keeps this rank from its next exchange, where the others then throw. A
  /// rank that ran out of memory may instead try again by itself. It cannot if this was its `last`
  /// try, or if ranks exchange in each micro-step. Returns true if the failure was reported.
  bool report_failure(const std::exception_ptr& failure, bool last = false) noexcept;
  /// Calls report_failure() for a call that makes a cycle. The other ranks drop the cycle that they
  /// are reported about. This rank has dropped it or never begun it, unless it still has one to
  /// drop.
  void end_for_others(const std::exception_ptr& failure, bool last) noexcept;
  /// Called when ranks have stopped at different points, because one has failed or is elsewhere.
  virtual void stopped() noexcept {}
  /// Returns true if ranks exchange in each micro-step, so that no rank can repeat one by itself.
  virtual bool exchanges_in_micro_steps() const noexcept { return false; }
  /// Sums this rank's gradients, which are in `unit`, over all ranks, in the unit `of_all`.
  virtual void add_gradients(double unit, double of_all);
  /// Sums copies of the gradients, which are in this rank's unit, over all ranks, in the unit
  /// `of_all`.
  void add_copies(std::span<const Tensor> gradients, double of_all) const;
  void wait_for_exchange() const;
  const RankExchange& exchange() const noexcept { return exchange_; }

  Call call_;

 private:
  /// Leaves a loaded cycle, which has the sums of all ranks, to rank 0. Other ranks begin with
  /// nothing.
  void leave_to_first_rank();
  void add_cycle_so_far(std::vector<StateEntry>& state, const std::vector<std::uint8_t>& received,
                        const CycleSums& all);

  RankExchange exchange_;
  std::int64_t number_;
  std::vector<std::uint8_t> received_;    ///< 1 for each parameter with a gradient, in combine()
  Tensor micro_steps_;                    ///< i64 [1]: number on this rank, then on all
  const std::vector<Gathering> weights_;  ///< see gather_weights()
};

}  // namespace firn::optim
