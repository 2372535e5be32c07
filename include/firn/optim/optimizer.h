// The optimizer: owns how gradients are accumulated, averaged, checked and applied.
//
//   optim::AdamW opt(net.parameters(), {.lr = 1e-3, .weight_decay = 0.01});
//   opt.backward(cross_entropy(net(x), y));  // adds the gradient of the sum, and the loss's weight
//   if (opt.step()) { ... }                  // divides by the weight, checks, updates, zeroes
//
// backward() can be called several times before a step(): the step then sees the gradient of the
// mean over all of their samples, however unevenly they were split. With {.accumulate = 4} the same
// loop makes cycles of four micro-batches: step() acts on every fourth call, and flush() ends the
// last cycle of an epoch.
//
// The class is accompanied by joint_step.h (steps of several optimizers), ema.h (averages of the
// weights) and health.h (a look at the gradients). Rules such as S04 are in docs/semantics.md.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "firn/optim/loss_function.h"
#include "firn/optim/micro_batch.h"
#include "firn/optim/param_list.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "firn/optim/step_report.h"
#include "firn/tensor.h"

namespace firn {
struct Loss;  // losses.h; the optimizer needs only its two tensors
}

namespace firn::optim {

/// A tensor of the optimizer's state, by name.
using NamedState = NamedTensor;

/// Sums over all micro-steps of an optimizer so far: the losses' sums and their weights, of the
/// micro-steps in which both were finite. The mean loss between readings a and b is (b.loss -
/// a.loss) / (b.weight - a.weight). Dropped cycles count, except over ranks and in exact mode.
/// There, in mid-cycle, the sums have only this rank's part of it.
struct LossTotals {
  double loss = 0, weight = 0;  ///< sum of the losses, and of their weights
};

/// Options of one backward().
struct BackwardPass {
  /// Keeps what the graph saved, so that another backward() can run through it.
  bool retain_graph = false;
};

/// Base of all optimizers. The constructor moves the parameters into flat arenas on their device,
/// one per group and dtype. It also allocates arenas for gradients and for the optimizer's
/// state in f32 (f64 for f64 parameters); f16 and bf16 parameters also get f32 masters. All memory
/// is allocated in the constructor: a step allocates nothing that it needs to finish.
///
/// Handles of parameters that were made before see the updates. So do views if the parameter fills
/// its memory, row-major or channels-last. Any other parameter is copied, and its earlier views
/// keep the old elements. Gradients collected before are dropped.
///
/// Kernels make every decision of a step in device memory: skip or apply, the average, clipping,
/// the learning rate, the number of the step. The host waits for nothing.
///
/// Two threads must not use an optimizer at the same time.
class Optimizer {
 public:
  /// The parameters keep their values and can be given to another optimizer.
  virtual ~Optimizer();
  /// An optimizer that was moved from can be destroyed or assigned to; all else throws Error.
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  // ---- The step ----

  /// Back-propagates loss.sum and adds loss.weight to the cycle's weight. Gradients are added up in
  /// the arenas; under a loss scale, what grad() shows in mid-cycle is the sum times a power of
  /// two.
  ///
  /// Throws Error if the loss has no gradient, is not a scalar f32 or f64, or is on another device;
  /// and if parameters have gradients from a plain loss.backward(), which carries no weight. If the
  /// backward pass itself throws, the cycle is lost: call zero_grad(), or roll back
  /// (firn/runtime/rollback.h). If memory runs out in it, the cycle is dropped, and OutOfMemory
  /// says so if the heap has enough left for the text. With StepOptions::keep_accumulator, the
  /// cycle is as before the call.
  ///
  /// The pass adds gradients to this optimizer's parameters and to leaves that belong to no
  /// optimizer. Such a leaf gets the gradient of loss.sum times a power of two, 1 without loss
  /// scaling. step() neither divides nor clears it. The pass goes through parameters of another
  /// optimizer and leaves their gradients alone, as a generator's loss goes through the
  /// discriminator. If a loss trains the parameters of two optimizers, call backward() of each, of
  /// the first one with {.retain_graph = true}.
  ///
  /// While the pass is running, calls of this optimizer that change the cycle throw Error, as from
  /// a hook.
  void backward(const Loss& loss, const BackwardPass& pass = {});
  /// Takes any scalar: `sum` is a sum over samples and `weight` their number. With the default
  /// weight, one backward() and a step() apply the gradient of `sum` as it is.
  void backward(const Tensor& sum, double weight = 1, const BackwardPass& pass = {});
  void backward(const Tensor&,  // backward(sum, weight, {.retain_graph = true})
                std::same_as<bool> auto) = delete;

  /// Makes a micro-step of weight 0, for a rank that has no samples where others have some
  /// (dist/distribute.h). Throws Error in exact mode and with sharded weights: call run_batch()
  /// there.
  void no_samples();

  /// Every N-th call since the cycle began, N = StepOptions::accumulate, ends the cycle: divides
  /// the accumulated gradients by the accumulated weight, checks that all are finite, clips,
  /// updates, and sets them to zero. Other calls only report.
  ///
  /// A parameter that received no gradient in the cycle is not touched: no decay, no momentum. If a
  /// gradient or the loss is not finite, the weight is 0, or no parameter received a gradient, the
  /// step is skipped: nothing but the gradients and the loss scale changes. A call without a
  /// backward() since the last one does not count: it reports `accumulating`, and the first such
  /// call warns.
  ///
  /// Throws as backward() does. Also throws, once the cycle is over, if max_skips steps in a row
  /// were skipped for a value that was not finite. On a device the host does not wait to see that:
  /// a later step() throws. It can be called again to go on.
  StepReport step();
  /// Ends a cycle that has fewer micro-steps than it should, for example at the end of an epoch
  /// (S04). Apply makes a step with the weight that the cycle has. If the cycle has no micro-step,
  /// nothing happens; the report then says `accumulating` with 0 micro-steps, as it does for
  /// `drop`.
  StepReport flush(Partial partial = Partial::apply);
  /// Drops the cycle: no parameter has a gradient, and the weight is 0. A step() that ends a cycle
  /// clears the gradients itself. After each micro-step of a longer cycle, zero_grad() drops all of
  /// it, and no step is ever made; a zero_grad() right after such a step() warns.
  void zero_grad();

  // ---- Whole cycles ----

  /// Runs a whole cycle, whatever StepOptions::accumulate says: backward(micro_batch(i)) for i in
  /// [0, micro_steps), then a step. The function only computes the loss: backward(), step(),
  /// flush(), zero_grad() and calls that make a whole cycle throw Error in it. If it loads a run or
  /// writes into state(), the cycle throws Error and is dropped; the state stays as it was written.
  /// A std::bad_alloc of the function becomes OutOfMemory, whose text names the function.
  /// With OverflowPolicy::retry, a cycle whose gradients overflow is computed again at the lower
  /// loss scale (S15), up to 64 times. Each try begins with the same random streams (those of
  /// RollbackPoint), running statistics, positions of loaders, and tensors given to
  /// restore_on_retry(). A retry waits for the device. Throws Error if a cycle is under way. If the
  /// function throws, or memory runs out before the step, the cycle is dropped; with
  /// OverflowPolicy::retry all these go back too.
  StepReport run_cycle(std::int64_t micro_steps,
                       const std::function<Loss(std::int64_t i)>& micro_batch);
  /// Runs a cycle for a batch of `samples` samples in micro-batches of at most `micro_batch`, both
  /// 1 or more. loss(first, last) is the loss of samples [first, last). Throws OutOfMemory if
  /// memory runs out; only the form with MicroBatch halves the size.
  StepReport run_batch(std::int64_t samples, std::int64_t micro_batch,
                       const std::function<Loss(std::int64_t first, std::int64_t last)>& loss);
  /// Runs a cycle with micro-batches whose size is planned, or halved if memory runs out (S22,
  /// S37): see MicroBatch. The report says the size, and how often memory ran out. If one sample
  /// does not fit, throws OutOfMemory. All is then as before the call, except for effects of `loss`
  /// outside of firn. In exact mode over several ranks the random stream goes on, equally on all
  /// ranks. While a graph is captured, the size must be given and nothing is halved.
  StepReport run_batch(std::int64_t samples, const MicroBatch& micro_batch,
                       const std::function<Loss(std::int64_t first, std::int64_t last)>& loss);
  /// Runs a whole cycle for a loss that couples the samples of its batch (S20), in the memory of
  /// one part of the graph (gradient caching, Gao et al. 2021). First every part is encoded without
  /// recording. Then `loss` is computed from all encodings, which gives their gradients. Last,
  /// every part is encoded once more to carry these to the parameters.
  ///
  /// encode(i), for i in [0, parts), returns [n_i, ...], with equal sizes on all axes but the
  /// first. It is called twice and must return the same: random streams, running statistics and
  /// loaders begin anew. loss(all) is given the [sum of n_i, ...] in order, and may have parameters
  /// of its own. Throws Error if a cycle is under way or the shapes do not fit. If a function
  /// throws, or memory runs out before the step, the cycle is dropped, and streams, statistics and
  /// loaders go back too.
  StepReport step_two_pass(std::int64_t parts, const std::function<Tensor(std::int64_t i)>& encode,
                           const std::function<Loss(const Tensor& all)>& loss);
  /// Sets the tensors that your own forward pass changes, in place of an earlier list. A retried
  /// cycle, and the second pass of step_two_pass(), begin with the values that they had before.
  /// firn's layers need no such call. Throws Error for an undefined tensor.
  void restore_on_retry(std::vector<Tensor> buffers);

  // A function that returns a tensor does not compile, and the error says what to return.
  template <detail::GivesTensor<std::int64_t> Fn>
  StepReport run_cycle(std::int64_t, const Fn&) {
    detail::refuse_tensor_as_loss<Fn>();
  }
  template <detail::GivesTensor<std::int64_t, std::int64_t> Fn>
  StepReport run_batch(std::int64_t, std::int64_t, const Fn&) {
    detail::refuse_tensor_as_loss<Fn>();
  }
  template <detail::GivesTensor<std::int64_t, std::int64_t> Fn>
  StepReport run_batch(std::int64_t, const MicroBatch&, const Fn&) {
    detail::refuse_tensor_as_loss<Fn>();
  }
  template <detail::GivesTensor<const Tensor&> Fn>
  StepReport step_two_pass(std::int64_t, const std::function<Tensor(std::int64_t)>&, const Fn&) {
    detail::refuse_tensor_as_loss<Fn>();
  }

  // ---- Position in the cycle ----

  /// Sets the epoch for StepOptions::accumulate; 0 at first. A begun cycle keeps its length (S24).
  void set_epoch(std::int64_t epoch);
  /// Returns the number of step() calls in the cycle under way, or in the next one if none has
  /// begun.
  std::int64_t cycle_length() const;
  /// Returns the number of step() calls so far in the cycle under way: 0 if the next call is its
  /// first, cycle_length() - 1 if the next one ends it.
  std::int64_t cycle_position() const;
  /// Returns the report of the cycle under way so far; if there is none, the one that step()
  /// returned last. After the replay of a graph, it is the report of the replayed step.
  StepReport last_report() const;
  /// Returns the sums that a log of an epoch needs, kept on the device. Waits for the device.
  LossTotals loss_totals() const;

  // ---- Settings ----

  /// Returns the learning rate of the next step if that is applied. Waits for the device.
  double lr() const;
  /// Sets a constant from the next step on. Throws Error unless 0 <= lr < infinity.
  void set_lr(double lr);
  /// Sets another schedule from the next step on; its step 0 is the optimizer's first step. Throws
  /// Error for a constant outside that range.
  void set_lr(const Schedule& lr);

  /// Returns the loss scale of the next micro-step; 1 without loss scaling. Waits for the device.
  double loss_scale() const;
  /// Sets the loss scale. The cycle's sums are expressed anew, exactly (S05). The counters of a
  /// dynamic scale begin anew. Throws Error unless it is a power of two within the limits of the
  /// policy ([2^-24, 2^24] for a fixed one), and if there is no loss scaling.
  void set_loss_scale(double scale);

  // ---- Parameters and state ----

  /// Returns the parameters in the order given, groups one after another, each once.
  std::vector<Tensor> parameters() const;

  /// Takes the f32 masters of f16 and bf16 parameters from their present values, and begins moving
  /// averages anew at the weights. Masters follow weights that ops or loads have written without
  /// this call. The next backward() or step() finds every weight that is not its master rounded,
  /// and makes it the master. So a restored state keeps its masters to the bit (S28). Moving
  /// averages keep their old values without this call. Writes through data() or mutable_view() are
  /// not found: a step puts back the old masters.
  void refresh_masters();

  /// Returns all that a continued run needs, cycle included. The tensors share the optimizer's
  /// memory, so copying into them restores it. Gradients of parameters that the cycle has not
  /// reached are zero at the call and have no meaning later.
  ///
  /// Names: "parameters.<i>.weight", ".gradient", ".master", ".ema", ".momentum", ".first_moment",
  /// ...; "update_counts" (i64 per parameter: bias corrections count the updates of each),
  /// "touched", "kind" (u8 on the CPU: a text), and "cycle" (i64 on the CPU: cycles ended, epoch,
  /// length of the cycle under way, calls of step() and micro-steps in it, and the micro-steps at
  /// the last of these calls). The bytes of "step_state", "loss_scale" and "schedule" are this
  /// version's own. Codes of 8-bit states (StatePrecision) have the shape of their parameter if
  /// that is contiguous. Those of a channels-last parameter are flat, in memory order. In the scope
  /// of AveragedWeights it throws Error. Tensor::grad() shows copied gradients at once. The next
  /// backward() or step() throws Error if the copied bytes are not the state of an optimizer of
  /// this kind.
  std::vector<NamedState> state() const;

 protected:
  struct Impl;
  explicit Optimizer(std::shared_ptr<Impl> impl) noexcept;

 private:
  friend struct OptimizerAccess;  // firn's own functions of an optimizer, such as step_all()
  /// Throws Error if the optimizer was moved from.
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;  ///< held by this object alone
};

/// Describes the options in one line: "AdamW: 16 x 4 = 64 samples per step, f16 parameters with f32
/// masters, dynamic loss scale from 65536, clip norm 1, lr 0.001". Without `micro_batch`, the
/// number of samples in one, it says "4 micro-steps per step".
std::string describe(const Optimizer& optimizer, std::int64_t micro_batch = 0);

/// Constructors of all optimizers; Options: SGDOptions, and so on.
template <class Options>
class OptimizerOf : public Optimizer {
 public:
  /// Throws Error, naming index, name and shape, for a list without parameters; for a parameter
  /// that is not a leaf requiring a gradient, is given twice in different groups, shares memory
  /// with another one, or belongs to another optimizer; and for an option outside its range.
  explicit OptimizerOf(ParamList parameters,  // AdamOptions{...} names a wrong field; ema: in step
                       const Options& options = {}, const StepOptions& step = {});
  explicit OptimizerOf(std::vector<ParamGroup> groups, const Options& options = {},
                       const StepOptions& step = {});
  explicit OptimizerOf(std::initializer_list<ParamGroup> groups, const Options& options = {},
                       const StepOptions& step = {});
  /// A number alone has no name: write {.lr = 1e-3}.
  template <detail::ANumber Number, class... More>
  OptimizerOf(ParamList, Number, const More&...) = delete;  // write {.lr = 1e-3}
  /// A module is not a list of its parameters.
  template <detail::HasParameters Net>
  explicit OptimizerOf(const Net&,  // write net.parameters()
                       const Options& = {}, const StepOptions& = {}) = delete;
};

}  // namespace firn::optim
