// The places where a step can be extended: how a micro-step runs its pass, how the sums of a cycle
// come about, and who decides and publishes weights together with whom. Extensions form a list.
// Each hands on what it does not change to the next one, and the last one is the step of one
// process, which is this class itself. Exact mode is in exact/; steps of several ranks are in
// src/dist/step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "base/share.h"
#include "firn/random.h"
#include "kernels/optim.h"
#include "optim/access.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// The backward pass of a micro-step.
class Pass {
 public:
  /// `output` is the sum of a loss; undefined: this process has no samples. `gradient` is memory
  /// for its initial gradient, which `pending` computes. `first`: the cycle has no pass before it.
  Pass(OptimizerImpl& step, Tensor output, Tensor gradient, const kernels::PendingSeed& pending,
       bool first, bool retain_graph)
      : step_(step),
        output_(std::move(output)),
        gradient_(std::move(gradient)),
        pending_(pending),
        first_(first),
        retain_graph_(retain_graph) {}

  const Tensor& output() const noexcept { return output_; }
  bool has_samples() const noexcept { return output_.defined(); }
  /// Computes the initial gradient, and expresses what `arenas` have collected in its unit.
  void begin(std::span<const kernels::OptimizerArena> arenas) const;
  /// The same for the optimizer's arenas, which hold nothing before the first pass.
  void begin() const;
  /// The pass itself, after begin(). With `awaited`, leaves tell their collector of the last
  /// gradient that they receive (autograd::Collector).
  void run(bool awaited) const;
  /// begin() and run(). If the loss can, it computes the initial gradient itself.
  void run_at_once() const;

 private:
  OptimizerImpl& step_;
  Tensor output_, gradient_;
  kernels::PendingSeed pending_;
  bool first_, retain_graph_;
};

class StepExtension {
 public:
  using MicroSteps = std::function<void(std::int64_t i)>;
  using LossOf = std::function<Loss(std::int64_t first, std::int64_t last)>;
  /// What a user may call in the middle of a cycle.
  enum class Call : std::uint8_t { backward, step, flush };

  /// `next` is what it extends; null: the step of one process.
  explicit StepExtension(OptimizerImpl& of, std::unique_ptr<StepExtension> next = nullptr);
  virtual ~StepExtension();
  StepExtension(const StepExtension&) = delete;
  StepExtension& operator=(const StepExtension&) = delete;

  /// The first extension of this kind from here on, or null.
  template <class Kind>
  Kind* find() noexcept {
    for (StepExtension* e = this; e; e = e->next_.get())
      if (auto* const found = dynamic_cast<Kind*>(e)) return found;
    return nullptr;
  }
  /// Puts `next`, which is not null, behind this one, in place of the rest of the list.
  void extend(std::unique_ptr<StepExtension> next) noexcept { next_ = std::move(next); }

  /// The ranks that make the step together; null in both if there is one process.
  virtual autograd::StepRanks ranks() const noexcept;
  /// The ranks that have the same parameters and other samples, or null.
  const autograd::Peers* copies() const noexcept { return ranks().copies; }
  /// Runs fn() on all ranks: if it throws on one, all throw.
  void together(const std::function<void()>& fn) const;
  /// This rank's share of n samples or chunks.
  Share share_of(std::int64_t n) const noexcept;

  /// Which part of the model this process has, in words; empty if it has all of it.
  virtual std::string place() const;

  // ---- Micro-steps ----

  /// Throws Error if the cycle has no place for this call.
  virtual void check_call(Call call) const;
  /// Throws Error for a loss that couples samples if others have some of them.
  virtual void check_coupled(bool coupled) const;
  /// Called at replays too.
  virtual void begin_micro_step();
  virtual void run_pass(const Pass& pass);
  /// Takes part in a micro-step of the other ranks, which does not count here.
  virtual void idle_micro_step();

  // ---- Calls that make a whole cycle ----

  /// Calls micro_step(i) for i in [0, count).
  virtual void run_micro_steps(std::int64_t count, const MicroSteps& micro_step);
  /// Makes a cycle of `samples` in micro-batches of `size`, the last one of what is left. For
  /// `between` see MicroBatch.
  virtual StepReport run_batch(Optimizer& optimizer, std::int64_t samples, std::int64_t size,
                               const LossOf& loss, const MicroSteps& between);
  /// Takes a function that computes a loss of any samples: with sharded weights a rank without
  /// samples runs it, since all ranks run the same program. An empty one takes it back.
  virtual void set_loss_of_others(std::function<Loss()> loss);
  /// Runs call(), which makes a cycle in one attempt or several.
  virtual StepReport whole_call(const std::function<StepReport()>& call);
  /// Runs the micro-steps of an attempt.
  virtual void attempt(const std::function<void()>& micro_steps);
  /// Runs part(), which goes on with a cycle and may end it.
  virtual void part_of_cycle(const std::function<void()>& part);
  /// Draws the random numbers of a cycle that begins without run_batch() here: a replayed one, or
  /// one that only other ranks have begun.
  virtual void draw_for_cycle() noexcept;
  /// Whether an attempt that ran out of memory may be repeated with smaller micro-batches.
  virtual bool may_try_again() const noexcept;
  /// This rank was short of memory, and tries again or not. Throws if others cannot.
  virtual void agree_to_retry(bool again);

  // ---- The end of a cycle ----

  /// Whether flush() has no cycle to end on any rank.
  virtual bool nothing_to_flush();
  /// The cycle's sums become those of all. Throws on every rank or on none.
  virtual void combine();
  /// Has the device decide on the step.
  virtual void decide();
  /// Returns what the gradients of all come to, of the parameters that have 1 in `of`.
  virtual math::GradientSummary summarize(const Tensor& of);
  /// The update is made; weights that others have updated come here.
  virtual void publish_weights();
  /// The cycle is over. Called at replays too.
  virtual void cycle_ended();
  /// The device drops what it has collected of the cycle.
  virtual void drop_cycle();
  /// Tells the other ranks that a cycle ends here, or is saved. `received`, 1 for each parameter
  /// with a gradient, becomes that of all.
  enum class Event : std::uint8_t { end, save };
  virtual void announce(Event event, std::vector<std::uint8_t>& received);
  /// Layers' states of the cycle become those of all, and exchanges of a device have ended.
  virtual void end_exchange();

  // ---- What is kept ----

  /// A state that was copied in was taken over.
  virtual void state_adopted();
  /// What was written to weights from outside is taken over.
  virtual void take_over_weights();
  /// Changes what Optimizer::state() returns.
  virtual void extend_state(std::vector<StateEntry>& state);
  /// Entries that a file of save_run() may have beside the state.
  virtual std::vector<StateEntry> entries_in_file();
  /// `state` becomes that with the cycle of all ranks. A call of all ranks.
  virtual void add_cycle_of_all(std::vector<StateEntry>& state);
  /// Why the cycle cannot be saved; empty if it can.
  virtual std::string why_not_saved() const;
  /// Whether a save would be one within a batch, and where the random stream was before it.
  struct InBatch {
    bool yes = false;
    std::optional<RandomKey> random = {};
  };
  virtual InBatch in_batch() const noexcept;
  /// Where the random numbers of the cycle begin, if ranks must agree on that.
  virtual std::optional<RandomKey> random_of_cycle() const noexcept;
  /// While the result lives, weights are whole here; null if they always are.
  virtual std::shared_ptr<void> hold_weights();
  /// Keeps what a plan may change here. The result puts it back.
  virtual std::function<void()> keep();

 protected:
  StepExtension& next() const noexcept { return *next_; }
  /// A cycle is dropped: its losses leave the totals, which become those of `before`.
  void restore_totals(const std::function<math::SeedSums()>& before) const;

  OptimizerImpl& step;

 private:
  std::unique_ptr<StepExtension> next_;
};

}  // namespace firn::optim
