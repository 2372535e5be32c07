// The state behind an Optimizer. How a cycle goes is in step.cpp, and how it is taken back in
// cycle/snapshot.h. An Impl is made of these parts:
//
//   ParamStore (store/)   arenas and device memory of the step; its GradientLedger: who has a
//                         gradient
//   Progress, CycleState, CallState, HostNotes   what the host knows (cycle/cycle_state.h), and how
//                         it is kept and put back (cycle/snapshot.h)
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
#include "optim/checks.h"
#include "optim/cycle/cycle_members.h"
#include "optim/cycle/cycle_state.h"
#include "optim/cycle/replay_hooks.h"
#include "optim/cycle/snapshot.h"
#include "optim/policy/scaler.h"
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
    if (options.keep_accumulator && !hooks.capturing()) kept = keep_cycle(*this, &copy);
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
      out_of_memory(*this, e, before);
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
          fail_of_function(*this);
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

  /// autograd::Cycle, for layers.
  void join(const std::shared_ptr<autograd::CycleMember>& member) override { members.join(member); }
  std::int64_t micro_steps() const noexcept override;
  void drop_members();

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
  CycleCopy copy;                            ///< with StepOptions::keep_accumulator
  int passes = 0;  ///< backward passes that are running; those of chunks may take turns
};

}  // namespace firn::optim
