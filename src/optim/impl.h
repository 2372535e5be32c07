// What is behind an Optimizer. How a cycle goes is in step.cpp, and how it is taken back in
// snapshot.cpp. The parts that it is made of:
//
//   ParamStore (store/)   arenas and device memory of the step; its GradientLedger: who has a
//                         gradient
//   Progress, CycleState, CallState, HostNotes   what the host knows (cycle/cycle_state.h), and how
//                         it is kept and put back (snapshot.cpp)
//   CycleMembers          states of layers that take part in the cycle
//   ReplayHooks           what the host does again if captured work is replayed
//   RankExchange, ExactSums (ranks/)   other ranks that make the same steps; sums in a fixed tree
#pragma once

#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "base/check.h"
#include "base/share.h"
#include "firn/optim/optimizer.h"
#include "optim/cycle/cycle_members.h"
#include "optim/cycle/cycle_state.h"
#include "optim/policy/scaler.h"
#include "optim/progress.h"
#include "optim/ranks/buckets.h"
#include "optim/ranks/exact.h"
#include "optim/ranks/exchange.h"
#include "optim/ranks/lent.h"
#include "optim/ranks/model.h"
#include "optim/ranks/overlap.h"
#include "optim/replay_hooks.h"
#include "optim/store/param_store.h"

namespace firn::optim {

/// The denominator of a loss: a tensor, or if that is undefined, a number.
struct LossWeight {
  Tensor tensor = {};
  double number = 0;
};

/// What an algorithm's options say beside the rules of its groups.
struct RunSetup {
  Schedule lr;
  math::AveragePolicy average = {};
};

struct Optimizer::Impl final : autograd::Cycle {
  /// Rules: one per group. Throws Error for options outside their range.
  Impl(const char* op, std::vector<GroupSetup> groups, const RunSetup& run,
       const StepOptions& step);
  /// A cycle that is under way is dropped.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // ---- The cycle (step.cpp) ----

  struct CycleSnapshot;
  /// While alive, a backward pass of the cycle is running, and its hooks may not change the cycle.
  class RunningPass {
   public:
    explicit RunningPass(Impl& impl) noexcept : impl_(impl) { ++impl_.passes; }
    ~RunningPass() { --impl_.passes; }
    RunningPass(const RunningPass&) = delete;
    RunningPass& operator=(const RunningPass&) = delete;

   private:
    Impl& impl_;
  };

  void backward(const Tensor& sum, const LossWeight& weight, const BackwardPass& pass);
  /// Optimizer::backward(), for calls that make a whole cycle too.
  void add_loss(const Loss& loss, const BackwardPass& pass = {});
  /// Counts a micro-step and runs its pass.
  template <class Pass>
  void micro_step(const Pass& pass) {
    std::optional<CycleSnapshot> kept;
    if (options.keep_accumulator && !hooks.capturing()) kept = keep_cycle(&copy);
    begin_micro_step();
    run_guarded(pass, kept ? &*kept : nullptr);
  }
  /// Runs a pass of the cycle. If it throws, the cycle is broken; if memory runs out in it, the
  /// cycle is as `before`, or (null) dropped.
  template <class Pass>
  void run_guarded(const Pass& pass, const CycleSnapshot* before) {
    now.phase = Phase::failed;
    try {
      const RunningPass running(*this);
      try {
        pass();
      }
      FIRN_OUT_OF_MEMORY("backward")
    } catch (const OutOfMemory& e) {
      if (hooks.capturing()) throw;
      out_of_memory(e, before);
    }
    now.phase = Phase::collecting;
  }
  /// The pass itself, from memory for the seed on.
  void run_pass(const Tensor& sum, const Tensor& seed, const LossWeight& weight,
                const BackwardPass& pass, bool first);
  StepReport step();
  StepReport flush(Partial partial);
  void zero_grad();
  /// Counts a call of step(). Returns whether it ends the cycle.
  bool count_call();
  /// Decides and commits.
  StepReport end_cycle();
  /// Runs micro_steps(), then ends the cycle. If either throws before the cycle is over, drops it
  /// and calls undo(). What a function of the user's throws comes by here, whatever makes the
  /// cycle: std::bad_alloc is OutOfMemory from here on.
  template <class MicroSteps, class Undo>
  StepReport whole_cycle(const MicroSteps& micro_steps, const Undo& undo) {
    const std::int64_t ended = at.cycles;
    call.attempted = !runtime::dry_run();
    call.begun = call.begun || call.attempted;
    await_failure();
    try {
      try {
        try {
          micro_steps();
        } catch (const std::bad_alloc&) {
          fail_of_function();
        }
      } catch (...) {
        end_for_others(std::current_exception(), false);
        throw;
      }
      const StepReport report = end_cycle();
      call.attempted = false;
      if (!runtime::dry_run()) call.failure_told = true;
      return report;
    } catch (...) {
      if (at.cycles == ended) {
        zero_grad();
        undo();
      }
      throw;
    }
  }
  /// Runs the kernels up to the decision. Returns false if the cycle's losses have reached no
  /// parameter.
  bool decide();
  /// Returns fn(), a call of all ranks that makes a whole cycle, or tries to do so several times.
  /// If it throws, be it before the first try or between two, the other ranks learn of it.
  template <class Fn>
  StepReport call_of_all(const Fn& fn) {
    await_failure();
    call.begun = false;
    try {
      const StepReport report = fn();
      if (!runtime::dry_run()) call.failure_told = true;
      return report;
    } catch (...) {
      end_for_others(std::current_exception(), true);
      throw;
    }
  }
  /// Runs fn(), which goes on with a cycle and may end it. If it has ranks and throws, the cycle is
  /// dropped, and the others learn of it at the end of theirs.
  template <class Fn>
  void part_of_cycle(const Fn& fn) {
    if (!has_ranks()) return fn();
    await_failure();
    try {
      fn();
      if (!runtime::dry_run()) call.failure_told = true;
    } catch (...) {
      end_for_others(std::current_exception(), true);
      zero_grad();
      throw;
    }
  }
  /// After the decision, which may still become a skip: computes what rules do not compute element
  /// by element. If that throws, all is as before, or the cycle is dropped.
  void compute_rules();
  /// Runs the kernels after the decision, and begins the next cycle. The loss scale moves unless
  /// others share it.
  void commit(bool moves_scale);
  StepReport report_of_cycle() const;
  StepReport report_so_far() const;
  /// run_cycle() of micro-steps that are not only backward passes.
  StepReport run_cycle(std::int64_t micro_steps,
                       const std::function<void(std::int64_t i)>& micro_step);

  // ---- Steps of several ranks, and exact mode (ranks/) ----

  /// From now on each step is made together with these ranks. No cycle is under way.
  /// `number` is the optimizer's, the same on all ranks.
  void take_part(std::shared_ptr<const autograd::Peers> peers, std::int64_t number);
  bool has_ranks() const noexcept { return ranks && !ranks->alone(); }
  autograd::StepRanks step_ranks() const noexcept {
    return {has_ranks() ? &ranks->peers() : nullptr, model ? &model->peers() : nullptr};
  }
  /// Throws Error for a loss that couples samples if other ranks have some of them.
  void require_uncoupled(bool coupled) const;
  /// This rank's part of n samples or quanta.
  Share share_of(std::int64_t n) const noexcept;
  /// A micro-step of weight 0.
  void no_samples();
  /// Whether flush() has no cycle to end. With several ranks, others may have one: a call of all.
  bool nothing_to_flush() const;
  /// What every micro-step does first.
  void begin_micro_step();
  /// Before the decision: the cycle's sums become those of all ranks, and in exact mode those of
  /// all quanta. If one of them throws, the cycle is broken.
  void combine();
  void combine_ranks();
  void combine_quanta();
  /// Gradients of this rank, in its unit, become the sums of all ranks in `unit`.
  void add_ranks(std::span<const Tensor> gradients, double unit) const;
  /// After the update: if ranks make it each for a part of the weights, all receive all.
  void receive_weights();
  /// Waits for what a device exchanges, and throws if that has failed.
  void wait_for_exchange() const;
  RankRecord record_of_cycle() const;
  RankRecord record_of_save() const {
    RankRecord out = record_of_cycle();
    out.place = CyclePlace::save;
    return out;
  }
  /// The decision together with the ranks that have the rest of the model (ranks/model.cpp).
  void decide_with_model();
  /// The cycle is dropped: its losses leave the totals, which are the same on all ranks.
  void forget_on_rank();
  /// Quanta of the batch in exact mode.
  std::int64_t quanta() const noexcept { return 1 + (call.batch - 1) / options.exact.quantum; }
  /// What the kernels have collected of the cycle. Waits for a device, as does the second one.
  math::SeedSums seed_sums() const;
  void set_seed_sums(const math::SeedSums& sums) const;
  /// A cycle begins. The host knows the sums on a device, and does not wait; in exact mode it asks
  /// for them unless they stay there.
  void note_sums_before() {
    const bool asks = options.exact.quantum > 0 && !exact.in_memory();
    if (store.device().is_cpu() || asks) now.sums_before = seed_sums();
  }

  // ---- Sums that are exchanged beside a backward pass (ranks/overlap.cpp) ----

  /// Whether the micro-step under way is the last of this rank in a run_batch() that exchanges so.
  bool exchanges_beside() const noexcept;
  /// The backward pass from `sum`, after its seed was computed; both may be empty. The gradients of
  /// the cycle become those of all ranks, in the unit of all. If a rank fails, all throw.
  void exchange_beside(const Tensor& sum, const std::function<void()>& pass);

  // ---- Gradients that ranks divide: micro-steps are turns of all ranks (ranks/turns.cpp) ----

  /// From now on, if the store has divided them.
  void divide_gradients();
  /// One micro-step of every rank. `pass` is the backward pass from `sum`, which gradients are in
  /// the unit of seed_sums(); both may be empty. What is kept so far has the unit `unit`. If a rank
  /// fails, all throw.
  void take_turn(const Tensor& sum, double unit, const std::function<void()>& pass,
                 bool of_others = false);
  /// The same of a rank without samples. If weights are divided, it runs what others run, and adds
  /// zeros.
  void take_turn_of_others(double unit);
  /// Runs micro_step(i) for i in [0, micro_steps), and takes part while other ranks have more.
  void run_turns(std::int64_t micro_steps, const std::function<void(std::int64_t i)>& micro_step);
  /// A turn of a rank that has made all its micro-steps. It does not count.
  void idle_turn();
  /// From now on other ranks wait for this one, and are to hear of its failure.
  void await_failure() noexcept {
    if (!runtime::dry_run()) call.failure_told = call.ended_by_others = false;
  }
  /// What has failed keeps this rank from its next turn, or from the end of its cycle: others throw
  /// there. Unless gradients are divided, a rank that is short of memory may try again by itself,
  /// but for the `last` time. Returns whether they have been told.
  bool tell_failure(const std::exception_ptr& failure, bool last = false) noexcept;
  /// This rank was short of memory, and tries again or not. If the others know of it they try as
  /// well, unless one cannot: then all throw.
  void agree_to_retry(bool again) const;
  /// tell_failure() of a call that makes a cycle. The others drop the one that they are told of.
  /// This rank has done so, or never begun it, unless it has one that is still to be dropped.
  void end_for_others(const std::exception_ptr& failure, bool last) noexcept {
    if (!tell_failure(failure, last)) return;
    if (at.length == 0 && !now.failed() && !call.attempted) call.dropped = 1;
    // In exact mode a cycle draws a number, on all ranks.
    if (options.exact.quantum > 0 && !call.begun && ranks->any_begun()) exact.draw_again();
  }
  /// In a turn, if weights are divided: the ranks tell each other what comes next, or that one has
  /// failed. Then all throw.
  void meet(CyclePlace place, std::size_t what = 0);
  std::span<const RankRecord> tell(const RankRecord& record, std::span<std::uint8_t> flags);
  RankRecord record_of_turn(autograd::Outcome outcome) const;
  /// The sums that are kept are expressed in another unit, or begin with zeros.
  void express_parts(double from, double to);
  /// What the gradients of all ranks come to, of the parameters that have 1 in `of`.
  math::GradientSummary summary_of_parts(const Tensor& of) const;
  void decide_with_parts();

  // ---- Snapshots (snapshot.cpp) ----

  /// The host's part of a cycle, as it was.
  struct HostSnapshot {
    Progress at;
    CycleState now;
    GradientLedger::Counts contributions;
  };
  /// The cycle, on the host and on the device.
  struct CycleSnapshot {
    HostSnapshot host;
    Tensor sums;                    ///< u8: the math::SeedSums that the step state begins with
    std::vector<Tensor> gradients;  ///< undefined for arenas that hold none
    std::uint32_t version;          ///< of the state
  };
  /// Memory for the tensors of a CycleSnapshot.
  struct CycleCopy {
    Tensor sums;
    std::vector<Tensor> gradients;
  };
  HostSnapshot keep_host() const { return {at, now, store.ledger().contributions()}; }
  void put_back(const HostSnapshot& kept) noexcept;
  CycleCopy reserve_copy() const;
  /// In memory that was reserved, or (null) in new memory.
  CycleSnapshot keep_cycle(const CycleCopy* memory = nullptr);
  /// A state that was copied in meanwhile stays, and so does a step that was made.
  void put_back(const CycleSnapshot& kept);

  /// Every call of an optimizer begins with it: in a plan of a step, all that the host knows is put
  /// back at its end.
  void keep_if_planned();
  /// The cycle is about to change: points of this thread keep it as it is. At a replay too.
  void about_to_change_cycle();
  /// The tensors given to restore_on_retry() are about to change.
  void about_to_change_restored() const;
  /// While a graph is captured: if its work is not run after all, what the host knows of the cycle
  /// is put back. The same for each replay.
  void remember_place();
  /// Memory ran out in a backward pass: the cycle is as it was, or (null) dropped. Throws
  /// OutOfMemory that says so, if there is memory for that.
  [[noreturn]] void out_of_memory(const OutOfMemory& e, const CycleSnapshot* before);
  /// Whether there is nothing that zero_grad() would drop.
  bool cycle_is_empty() const noexcept;

  // ---- What must hold (impl.cpp) ----

  /// Throws if the optimizer cannot go on with the cycle. Before that, takes over what was written
  /// from outside: state that was copied in, and weights.
  void check_ready();
  void require_no_cycle();
  /// Throws while a backward pass of the cycle is running.
  void require_no_pass() const;
  /// Throws if the call is made by a function that run_cycle(), run_batch() or step_two_pass() was
  /// given, while that is under way.
  void require_outside_cycle(const char* name) const;
  /// Throws OutOfMemory: the function of the call that makes the cycle threw std::bad_alloc.
  [[noreturn]] void fail_of_function() const;
  /// Throws if the loss scale is shared; `instead` is what to call.
  void require_own_scale(const char* instead) const;
  /// Throws unless the loss's weight is a scalar in f32 or f64 on the parameters' device.
  void require_weight(const Loss& loss) const;
  /// Throws if the graph that is replayed was captured at another place of the cycle.
  void require_place(bool as_captured) const;
  /// Throws if too many steps in a row were skipped (S12), once for each of them. On a device it
  /// looks at the outcome that the host can see without waiting.
  void check_skips();
  /// Each warns once. The first one also of parameters that were replaced (`unheld`).
  void warn_if_unreached(bool reached);
  void warn_of_empty_step();
  void warn_if_unscaled();
  /// Throws Error, naming what is wrong, unless the state that was copied in is one. Returns its
  /// schedule.
  Schedule check_copied(const ParamStore::HostState& state) const;
  /// Takes over a state that was copied in since the last look. Throws Error if it is not the state
  /// of an optimizer like this. Returns whether there was one.
  bool adopt_state();
  /// The same of which gradients the cycle has. All of them came with the state, so a pass that
  /// failed half-way is forgotten.
  void adopt_gradients() {
    if (!store.ledger().adopt()) return;
    if (now.failed()) now.phase = Phase::collecting;
    now.parts_held = true;
  }
  /// See ParamStore::state().
  std::vector<StateEntry> state(const autograd::Peers* peers);
  /// `state_of_all` becomes the same of all ranks' cycle, on rank 0: a call of all ranks. If it
  /// throws on one, it does on all.
  void gather_state();
  /// The state becomes that with the cycle of all ranks, which comes to `all`.
  void add_cycle_so_far(std::vector<StateEntry>& state, const std::vector<std::uint8_t>& received,
                        const CycleSums& all);
  /// In exact mode: entries that a file has if it was saved half-way in a batch
  /// (StateEntry::any_rows).
  std::vector<StateEntry> batch_in_file();
  /// Throws if a part of a batch was loaded, and nothing has gone on with it.
  void require_no_half_batch(const char* name) const;
  /// Whether the state is within a batch: of run_batch(), or of the file that was loaded.
  bool in_batch() const noexcept { return call.between_quanta.has_value() || exact.loaded(); }
  /// The state becomes that before the batch, and what all ranks have done of it. Rank 0 has it.
  void add_batch_so_far(std::vector<StateEntry>& state, const std::vector<std::uint8_t>& received);
  void add_batch(std::vector<StateEntry>& state, const ExactSums::Partial& partial);
  /// Why the state is none that a run could go on with; else empty.
  std::string why_not_saved() const;
  /// The cycle that was loaded is that of all ranks: rank 0 goes on with it, others have nothing.
  void leave_to_first_rank();
  /// Changes if a tensor of state() that is not of a parameter is written from outside.
  std::uint32_t version_of_state() const noexcept;

  /// autograd::Cycle, for layers.
  void join(const std::shared_ptr<autograd::CycleMember>& member) override { members.join(member); }
  std::int64_t micro_steps() const noexcept override;
  void drop_members();

  /// For a profile: the loss scale that was in force.
  void note_loss_scale(const StepReport& report) const;
  /// Tells the listener of the cycle that has ended.
  void tell_listener(const StepReport& report);

  StepOptions options;
  math::StepPolicy policy;
  Tensor kind_memory;      ///< u8 [32] on the CPU: a text, zeros behind it
  Tensor progress_memory;  ///< i64 [6] on the CPU: a Progress
  Progress& at;
  ParamStore store;
  LossScaler scaler;
  CycleState now;
  CallState call;
  HostNotes notes;
  CycleMembers members{*this};
  ReplayHooks<Impl> hooks;
  std::optional<RankExchange> ranks;
  std::optional<ModelRanks> model;
  std::vector<StateEntry> state_of_all;        ///< of gather_state(), for who asked for it
  std::unique_ptr<OverlappedSums> overlapped;  ///< null: sums are exchanged after the passes
  std::unique_ptr<GradientBuckets> buckets;    ///< null: gradients are not divided
  std::unique_ptr<LentWeights> lent;           ///< null: weights are not divided
  std::function<Loss()> loss_of_others;        ///< with lent: for turns without samples
  Tensor counted;                              ///< with buckets: u8 [parameters] of 1
  ExactSums exact;                             ///< with StepOptions::exact
  std::int64_t number = 0;                     ///< see take_part()
  CycleCopy copy;                              ///< with StepOptions::keep_accumulator
  int passes = 0;  ///< backward passes that are running; quanta may take turns
};

/// For firn's own functions of an optimizer that are not its members.
struct OptimizerAccess {
  using Impl = Optimizer::Impl;
  /// Throws Error if the optimizer was moved from.
  static Impl& impl(const Optimizer& o) { return o.impl(); }
};

/// Throws Error unless low <= value < high (and so for a NaN).
inline void require_option(const char* op, const char* name, double value, double low, double high,
                           const char* hint) {
  FIRN_CHECK(value >= low && value < high, op, hint, "{} is {}, not in [{}, {})", name, value, low,
             high);
}
/// The same without an upper end.
inline void require_option(const char* op, const char* name, double value, double low,
                           const char* hint) {
  require_option(op, name, value, low, HUGE_VAL, hint);
}

/// A number that rules multiply weights by. Its square is finite in f32, and so is that of what a
/// step makes of weights and gradients of any use.
inline void require_decay(const char* op, const char* name, double value, const char* hint) {
  require_option(op, name, value, 0, 0x1p30, hint);
}

/// Throws Error unless the rate is one. A schedule that is no constant was checked when it was
/// made.
inline void require_lr(const char* op, const Schedule& lr) {
  require_option(op, "lr", lr.at(0), 0, "0 leaves the weights as they are");
}
/// The same of weights that can use no rate above `most`: the ends of its pieces, which may still
/// grow beyond them (NonFinite::learning_rate).
inline void require_lr(const char* op, const Schedule& lr, double most) {
  require_lr(op, lr);
  for (int i = 0; i < lr.count(); ++i)
    for (const double rate : {lr.pieces()[i].from, lr.pieces()[i].to})
      FIRN_CHECK(rate <= most, op, "give a rate that the parameters' type can use",
                 "lr is {}, more than {}", rate, most);
}

/// Throws Error unless 0 < value < infinity.
inline void require_positive(const char* op, const char* name, double value, const char* hint) {
  FIRN_CHECK(value > 0 && value < HUGE_VAL, op, hint, "{} is {}, not a positive number", name,
             value);
}

}  // namespace firn::optim
