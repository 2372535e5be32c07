// The state behind an Optimizer. How a cycle goes is in step.cpp, and how it is taken back in
// snapshot.cpp. An Impl is made of these parts:
//
//   ParamStore (store/)   arenas and device memory of the step; its GradientLedger: who has a
//                         gradient
//   Progress, CycleState, CallState, HostNotes   what the host knows (cycle/cycle_state.h), and how
//                         it is kept and put back (snapshot.cpp)
//   CycleMembers          states of layers that take part in the cycle
//   ReplayHooks           what the host does again if captured work is replayed
//   StepExtension         exact mode, and other ranks that make the same steps: the step asks it,
//                         and knows none of them (step_extension.h)
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
#include "optim/access.h"
#include "optim/cycle/cycle_members.h"
#include "optim/cycle/cycle_state.h"
#include "optim/policy/scaler.h"
#include "optim/progress.h"
#include "optim/replay_hooks.h"
#include "optim/step_extension.h"
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
    try {
      extension->attempt([&] {
        try {
          micro_steps();
        } catch (const std::bad_alloc&) {
          fail_of_function();
        }
      });
      return end_cycle();
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

  /// A micro-step of weight 0.
  void no_samples();
  /// What every micro-step does first.
  void begin_micro_step();
  /// What the kernels have collected of the cycle. Waits for a device, as does the second one.
  math::SeedSums seed_sums() const;
  void set_seed_sums(const math::SeedSums& sums) const;

  /// The step is made by these ranks from now on; null: by this process. Exact mode stays first.
  void set_ranks(std::unique_ptr<StepExtension> ranks);

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
  /// Why the state is none that a run could go on with; else empty.
  std::string why_not_saved() const;
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
  std::unique_ptr<StepExtension> extension;  ///< never null
  std::vector<StateEntry> state_of_all;      ///< of gather_state(), for who asked for it
  CycleCopy copy;                              ///< with StepOptions::keep_accumulator
  int passes = 0;  ///< backward passes that are running; those of chunks may take turns
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
