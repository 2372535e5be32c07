// The interface through which a step is extended. An extension decides how a micro-step runs its
// pass, how the sums of a cycle are computed, and which ranks decide and publish weights together.
// Extensions form a list. Each passes to the next one what it does not change. The last one is the
// step of one process, which is this class itself. Exact mode is in exact/; the steps of several
// ranks are in src/dist/step.
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
  /// `output` is the sum of a loss, or undefined if this process has no samples. `gradient` is
  /// memory for its initial gradient, which `pending` computes. `first` says that the cycle has had
  /// no pass.
  Pass(OptimizerImpl& step, Tensor output, Tensor gradient, const kernels::PendingGradient& pending,
       bool first, bool retain_graph)
      : step_(step),
        output_(std::move(output)),
        gradient_(std::move(gradient)),
        pending_(pending),
        first_(first),
        retain_graph_(retain_graph) {}

  const Tensor& output() const noexcept { return output_; }
  bool has_samples() const noexcept { return output_.defined(); }
  /// Computes the initial gradient, and converts what `arenas` hold to its unit.
  void begin(std::span<const kernels::OptimizerArena> arenas) const;
  /// Calls begin() with the optimizer's arenas, or with none before the first pass of the cycle.
  void begin() const;
  /// Runs the pass, after begin(). With `awaited`, a leaf reports its last gradient to its
  /// collector (autograd::Collector).
  void run(bool awaited) const;
  /// Calls begin() and run(). A loss that can compute the initial gradient in its own kernel does
  /// so.
  void run_at_once() const;

 private:
  OptimizerImpl& step_;
  Tensor output_, gradient_;
  kernels::PendingGradient pending_;
  bool first_, retain_graph_;
};

class StepExtension {
 public:
  using MicroSteps = std::function<void(std::int64_t i)>;
  using LossOf = std::function<Loss(std::int64_t first, std::int64_t last)>;
  /// The calls that a user may make in the middle of a cycle.
  enum class Call : std::uint8_t { backward, step, flush };

  /// Extends `next`; null: this object is the step of one process.
  explicit StepExtension(OptimizerImpl& of, std::unique_ptr<StepExtension> next = nullptr);
  virtual ~StepExtension();
  StepExtension(const StepExtension&) = delete;
  StepExtension& operator=(const StepExtension&) = delete;

  /// Returns the first extension of this kind from here on, or null.
  template <class Kind>
  Kind* find() noexcept {
    for (StepExtension* e = this; e; e = e->next_.get())
      if (auto* const found = dynamic_cast<Kind*>(e)) return found;
    return nullptr;
  }
  /// Replaces all extensions behind this one by `next`, which must not be null.
  void extend(std::unique_ptr<StepExtension> next) noexcept { next_ = std::move(next); }

  /// Returns the ranks that make the step together. Both pointers are null for one process.
  virtual autograd::StepRanks ranks() const noexcept;
  /// Returns the ranks that have the same parameters and other samples, or null.
  const autograd::Peers* copies() const noexcept { return ranks().copies; }
  /// Runs fn() on all ranks. If it throws on one, it throws on all.
  void together(const std::function<void()>& fn) const;
  /// Returns this rank's share of n samples or chunks.
  Share share_of(std::int64_t n) const noexcept;

  /// Describes the part of the model that this process has; empty if it has all of it.
  virtual std::string place() const;

  // ---- Micro-steps ----

  /// Throws Error if the call is not allowed at this point of the cycle.
  virtual void check_call(Call call) const;
  /// Throws Error for a loss that couples samples if other ranks have some of the samples.
  virtual void check_coupled(bool coupled) const;
  /// Begins a micro-step. Replays call it too.
  virtual void begin_micro_step();
  /// Runs fn(), which allocates what a pass needs. If ranks run their passes together and it throws
  /// on one, all throw.
  virtual void before_pass(const std::function<void()>& fn);
  virtual void run_pass(const Pass& pass);
  /// Takes part in a padding micro-step: this rank only helps the others, and does not count it.
  virtual void idle_micro_step();

  // ---- Calls that make a whole cycle ----

  /// Calls micro_step(i) for i in [0, count).
  virtual void run_micro_steps(std::int64_t count, const MicroSteps& micro_step);
  /// Makes a cycle of `samples` samples in micro-batches of `size`; the last one may be smaller.
  /// `between` is MicroBatch::between.
  virtual StepReport run_batch(std::int64_t samples, std::int64_t size, const LossOf& loss,
                               const MicroSteps& between);
  /// Sets a function that computes a loss of any samples. With sharded weights a rank without
  /// samples runs it, because all ranks must gather the same weights. An empty function removes it.
  virtual void set_loss_of_others(std::function<Loss()> loss);
  /// Runs call(), which makes a cycle in one attempt or several. Wrap a lambda in std::ref() here
  /// and in part_of_cycle(): what the call allocates before it begins is not reported to others.
  virtual StepReport whole_call(const std::function<StepReport()>& call);
  /// Runs the micro-steps of an attempt.
  virtual void attempt(const std::function<void()>& micro_steps);
  /// Runs part(), which continues a cycle and may end it.
  virtual void part_of_cycle(const std::function<void()>& part);
  /// Notes that this process draws the random numbers of a cycle now.
  virtual void cycle_drawn() noexcept;
  /// Draws the random numbers of a cycle that begins here without run_batch(): a replayed cycle, or
  /// one that only other ranks have begun.
  virtual void draw_for_cycle() noexcept;
  /// Returns true if an attempt that ran out of memory may be repeated with smaller micro-batches.
  virtual bool may_try_again() const noexcept;
  /// Reports that this rank ran out of memory, and if it tries again. Throws if other ranks cannot.
  virtual void agree_to_retry(bool again);

  // ---- The end of a cycle ----

  /// Returns true if no rank has a cycle that flush() could end.
  virtual bool nothing_to_flush();
  /// Turns the cycle's sums into those of all ranks. Throws on every rank or on none.
  virtual void combine();
  /// Launches the kernels that decide on the step.
  virtual void decide();
  /// Returns a summary over all ranks of the gradients of the parameters that have 1 in `of`.
  virtual math::GradientSummary summarize(const Tensor& of);
  /// Receives the weights that other ranks have updated, after the update.
  virtual void publish_weights();
  /// Notes that the cycle is over. Replays call it too.
  virtual void cycle_ended();
  /// Resets what the device has summed over the cycle.
  virtual void drop_cycle();
  /// Announces to the other ranks that a cycle ends here, or is saved. `received` is 1 for each
  /// parameter with a gradient; it becomes 1 where any rank has one.
  enum class Event : std::uint8_t { end, save };
  virtual void announce(Event event, std::vector<std::uint8_t>& received);
  /// Combines the layers' states of the cycle over all ranks, and waits for a device's exchanges.
  virtual void end_exchange();

  // ---- Kept state ----

  /// Called after a state that was copied in was taken over.
  virtual void state_adopted();
  /// Takes over what was written to the weights from outside.
  virtual void take_over_weights();
  /// Changes what Optimizer::state() returns.
  virtual void extend_state(std::vector<StateEntry>& state);
  /// Returns entries that a file of save_run() may have besides the state.
  virtual std::vector<StateEntry> entries_in_file();
  /// Gathers the entries of `state` that have parts_in_memory: rank 0 gets whole tensors. All ranks
  /// make this call.
  virtual void gather_entries(std::vector<StateEntry>& state);
  /// Returns whole arenas, of which this rank has `parts`. All ranks make this call. Unless
  /// `to_all`, ranks other than 0 get an empty list.
  virtual std::vector<Tensor> gather_arenas(std::vector<Tensor> parts, bool to_all);
  /// Puts the cycle of all ranks into `state`. All ranks make this call.
  virtual void add_cycle_of_all(std::vector<StateEntry>& state);
  /// Says why the cycle cannot be saved. Empty if it can.
  virtual std::string why_not_saved() const;
  /// Tells if a save now would fall within a batch, and the random stream before that batch.
  struct InBatch {
    bool yes = false;
    std::optional<RandomKey> random = {};
  };
  virtual InBatch in_batch() const noexcept;
  /// Returns the random numbers of the cycle, if ranks must agree on where these begin.
  virtual std::optional<RandomKey> random_of_cycle() const noexcept;
  /// While the result lives, this rank has all weights. Null if it always has.
  virtual std::shared_ptr<void> hold_weights();
  /// Copies what a plan may change in this extension. The result restores it.
  virtual std::function<void()> keep();

 protected:
  StepExtension& next() const noexcept { return *next_; }
  /// Removes the losses of a dropped cycle from the totals, which become those of before().
  void restore_totals(const std::function<math::LossSums()>& before) const;

  OptimizerImpl& step;

 private:
  std::unique_ptr<StepExtension> next_;
};

}  // namespace firn::optim
