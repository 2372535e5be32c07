// The state behind an Optimizer. step.cpp runs a cycle, and cycle/snapshot.h undoes one. An Impl
// has these parts:
//
//   ParamStore (store/)   the arenas and the device memory of the step; its GradientLedger knows
//                         which parameters have a gradient
//   Progress, CycleState, CallState, HostNotes   what the host knows (cycle/cycle_state.h)
//   CycleMembers          the states of layers that take part in the cycle
//   ReplayHooks           effects that the host repeats when captured work is replayed
//   StepExtension         the interface through which exact mode and ranks extend a step, which
//                         knows none of its implementations (step_extension.h)
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

/// The denominator of a loss: a tensor, or a number if the tensor is undefined.
struct LossWeight {
  Tensor tensor = {};
  double number = 0;
};

/// An algorithm's options that are not part of its groups' rules.
struct RunSetup {
  Schedule lr;
  math::AveragePolicy average = {};
};

struct Optimizer::Impl final : autograd::Cycle {
  /// Each group has one rule. Throws Error for options outside their range.
  Impl(const char* op, std::vector<GroupSetup> groups, const RunSetup& run,
       const StepOptions& step);
  /// Drops a cycle that is under way.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // ---- The cycle (step.cpp) ----

  /// While alive, a backward pass of the cycle is running, and its hooks must not change the cycle.
  class RunningPass {
   public:
    explicit RunningPass(Impl& impl) noexcept : impl_(impl) { ++impl_.passes; }
    ~RunningPass() { --impl_.passes; }
    RunningPass(const RunningPass&) = delete;
    RunningPass& operator=(const RunningPass&) = delete;

   private:
    Impl& impl_;
  };

  /// While alive, a public call is running, in which functions of the user may run. They must not
  /// destroy the optimizer.
  class RunningCall {
   public:
    RunningCall(Impl& impl, const char* name) noexcept
        : impl_(impl), outer_(std::exchange(impl.call.running, name)) {}
    ~RunningCall() { impl_.call.running = outer_; }
    RunningCall(const RunningCall&) = delete;
    RunningCall& operator=(const RunningCall&) = delete;

   private:
    Impl& impl_;
    const char* outer_;
  };
  /// Begins a call that changes the cycle. Throws Error as require_outside_cycle() does.
  [[nodiscard]] RunningCall begin_call(const char* name) {
    require_outside_cycle(name);
    return {*this, name};
  }

  void backward(const Tensor& sum, const LossWeight& weight, const BackwardPass& pass);
  /// Does what Optimizer::backward() does. Calls that make a whole cycle use it too.
  void add_loss(const Loss& loss, const BackwardPass& pass = {});
  /// Counts a micro-step, calls allocate() for what its pass needs, and runs the pass. A process
  /// alone allocates before anything has changed; others learn of a failure in the micro-step.
  template <class Allocate, class Pass>
  void micro_step(const Allocate& allocate, const Pass& pass) {
    const bool alone = !extension->copies();
    if (alone) allocate();
    std::optional<CycleSnapshot> kept;
    if (options.keep_accumulator && !hooks.capturing()) kept = keep_cycle(*this, &copy);
    begin_micro_step();
    const auto run = [&] {
      if (!alone) extension->before_pass(std::ref(allocate));
      pass();
    };
    run_guarded(run, kept ? &*kept : nullptr);
  }
  /// Runs a pass of the cycle. If it throws, the cycle has failed. If memory runs out in it,
  /// restores the cycle to `before`, or drops it if `before` is null.
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
  /// Counts a call of step(). Returns true if it ends the cycle.
  bool count_call();
  /// Makes the decision and the update.
  StepReport end_cycle();
  /// Runs micro_steps(), then ends the cycle. If either throws before the cycle is over, drops the
  /// cycle and calls undo(). Turns a std::bad_alloc from the user's function into OutOfMemory.
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
  /// Runs the kernels up to the decision. Returns false if none of the cycle's losses has reached a
  /// parameter.
  bool decide();
  /// Computes the rules that are not elementwise, after the decision, which may still be to skip.
  /// If that throws, either nothing has changed or the cycle is dropped.
  void compute_rules();
  /// Runs the kernels after the decision, and begins the next cycle. Updates the loss scale if
  /// `moves_scale`; step_all() passes false if optimizers share the scale.
  void commit(bool moves_scale);
  StepReport report_of_cycle() const;
  StepReport report_so_far() const;
  /// Does what run_cycle() does, for micro-steps that are more than backward passes.
  StepReport run_cycle(std::int64_t micro_steps,
                       const std::function<void(std::int64_t i)>& micro_step);

  /// Counts a micro-step of weight 0.
  void no_samples();
  /// Does the part that all micro-steps begin with.
  void begin_micro_step();
  /// Reads the sums that the kernels have formed over the cycle. This and set_loss_sums() wait for
  /// the device.
  math::LossSums loss_sums() const;
  void set_loss_sums(const math::LossSums& sums) const;

  /// From now on `ranks` make the step; null: this process alone. Exact mode stays first in the
  /// list.
  void set_ranks(std::unique_ptr<StepExtension> ranks);

  // ---- Checks (impl.cpp) ----

  /// Throws Error if the optimizer cannot continue the cycle. Before that, takes over state and
  /// weights that were written from outside.
  void check_ready();
  void require_no_cycle();
  /// Throws while a backward pass of the cycle is running.
  void require_no_pass() const;
  /// Throws Error if the call comes from the function that run_cycle(), run_batch() or
  /// step_two_pass() is running, or from that of a rule.
  void require_outside_cycle(const char* name) const;
  /// Throws Error if the weights are their moving averages (AveragedWeights).
  void require_training_weights() const;
  /// Throws Error if the call comes from the function of a rule.
  void require_outside_rule(const char* name) const;

  /// The interface autograd::Cycle, which layers use.
  void join(const std::shared_ptr<autograd::CycleMember>& member) override { members.join(member); }
  std::int64_t micro_steps() const noexcept override;
  void about_to_change_gradients() override;
  void adopt_gradients() override;
  void drop_members();

  StepOptions options;
  math::StepPolicy policy;
  Tensor kind_memory;      ///< u8 [32] on the CPU: a text, padded with zeros
  Tensor progress_memory;  ///< i64 [6] on the CPU: the memory of `at`
  Progress& at;
  ParamStore store;
  LossScaler scaler;
  CycleState now;
  CallState call;
  HostNotes notes;
  CycleMembers members{*this};
  ReplayHooks<Impl> hooks;
  std::unique_ptr<StepExtension> extension;  ///< never null
  std::vector<StateEntry> state_of_all;      ///< result of gather_state(), until it is asked for
  CycleCopy copy;        ///< reserved memory, with StepOptions::keep_accumulator
  int passes = 0;        ///< number of backward passes under way; interleaved chunks have several
  bool in_rule = false;  ///< true while rules are computed, which may be functions of the user
};

}  // namespace firn::optim
