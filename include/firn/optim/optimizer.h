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
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/named_tensor.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "firn/optim/step_report.h"
#include "firn/tensor.h"

namespace firn {
struct Loss;  // losses.h; all that is asked of it is its two tensors
}

namespace firn::optim {

/// A list of parameters, with their names if they are known: from net.parameters(),
/// net.named_parameters(), or {weight, bias}. Errors and reports name parameters so.
class ParamList {
 public:
  ParamList() = default;
  ParamList(const std::vector<Tensor>& parameters);  // NOLINT: a list of tensors is one
  ParamList(std::initializer_list<Tensor> parameters);
  ParamList(std::vector<NamedTensor> parameters);  // NOLINT

  void push_back(const Tensor& parameter) { list_.push_back({{}, parameter}); }
  void push_back(NamedTensor parameter) { list_.push_back(std::move(parameter)); }
  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  const NamedTensor& operator[](std::size_t i) const { return list_[i]; }
  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }

 private:
  std::vector<NamedTensor> list_;
};

/// Parameters that are updated alike. What is set here stands instead of the optimizer's option of
/// that name; Error if its rule has none.
struct ParamGroup {
  ParamList parameters = {};
  double lr_scale = 1;  ///< multiplies the optimizer's learning rate; 0 or more
  std::optional<double> weight_decay = {};
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
  std::optional<double> momentum = {}, dampening = {}, alpha = {};
  std::optional<double> lr_decay = {}, initial_accumulator = {};
  std::optional<bool> nesterov = {}, centered = {};
};

/// A tensor of the optimizer's state, by name.
using NamedState = NamedTensor;

/// How the gradients that a cycle has collected so far look to a 16-bit type; shares are of the
/// parameter's elements. "Mean" is the averaged gradient without loss scale.
struct GradientHealth {
  double zeros = 0;          ///< share that is exactly 0
  double flushed = 0;        ///< not 0, but the mean would round to 0
  double subnormal = 0;      ///< the mean would be a subnormal number
  double non_finite = 0;     ///< Inf or NaN
  double largest = 0;        ///< largest finite magnitude of the mean
  double headroom_bits = 0;  ///< log2(largest number of the type / (loss scale * largest))
  bool received = false;     ///< whether the parameter has got a gradient in the cycle
};

/// Sums over all micro-steps of an optimizer so far: of their losses' sums and weights, where both
/// were finite. The difference between two of them, divided, is the mean loss of the time between.
struct LossTotals {
  double loss = 0, weight = 0;
};

/// What optimizers that step together do where one of them finds a value that is not finite.
enum class SkipPolicy : std::uint8_t {
  all,   ///< none makes its step
  each,  ///< only that one is skipped
};

/// Options of one backward().
struct BackwardPass {
  /// Keeps what the graph saved, so that another backward() can run through it.
  bool retain_graph = false;
};

class AveragedWeights;

/// Base of all optimizers. Making one moves the parameters into flat arenas on their device, one
/// per group and dtype, beside arenas for gradients and for the optimizer's state in f32 (f64 for
/// f64 parameters; f16 and bf16 parameters also get f32 masters). Handles and views made before see
/// the updates; but a parameter that is a part of a larger tensor, or is not row-major, is copied
/// out of it. Gradients collected before are dropped. All memory is had here: a step allocates
/// nothing that it needs to finish.
///
/// Everything that a step decides (skip or apply, divide by the weight, clip, learning rate, number
/// of the step) is decided by kernels in device memory; the host waits for nothing.
///
/// An optimizer must not be used by two threads at a time.
class Optimizer {
 public:
  /// The parameters keep their values and can be given to another optimizer.
  virtual ~Optimizer();
  /// An optimizer that was moved from can be destroyed or assigned to; all else throws Error.
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Back-propagates loss.sum and adds loss.weight to the cycle's weight. Gradients are added up in
  /// the arenas; under a loss scale, what grad() shows in mid-cycle is the sum times a power of
  /// two. Throws Error where the loss has no gradient, is not a scalar f32 or f64, or lives on
  /// another device; and where parameters have got gradients from a plain loss.backward(), which
  /// carries no weight. If the backward pass itself throws, the cycle is lost: call zero_grad().
  ///
  /// Only this optimizer's parameters collect gradients, and leaves that belong to none. The pass
  /// goes through parameters of another optimizer and leaves their gradients alone, as a
  /// generator's loss goes through the discriminator. For a loss that trains the parameters of two
  /// optimizers call backward() of each, of the first one with {.retain_graph = true}.
  void backward(const Loss& loss, const BackwardPass& pass = {});
  /// The same for any scalar: `sum` is a sum over samples and `weight` their number. With the
  /// default weight, one backward() and a step() apply the gradient of `sum` as it is.
  void backward(const Tensor& sum, double weight = 1, const BackwardPass& pass = {});

  /// Every N-th call since the cycle began, N = StepOptions::accumulate, ends the cycle: divides
  /// the accumulated gradients by the accumulated weight, checks that all are finite, clips,
  /// updates, and sets them to zero. A parameter that received no gradient in the cycle is not
  /// touched: no decay, no momentum. If a gradient or the loss is not finite, the weight is 0, or
  /// no parameter received a gradient, the step is skipped: nothing but the gradients and the loss
  /// scale changes. Other calls only report. A call without a backward() since the last one does
  /// not count: it reports `accumulating`, and the first such call warns.
  ///
  /// Throws as backward() does; and, once the cycle is over, where max_skips steps in a row were
  /// skipped for a value that was not finite. On a device nobody waits to see that: the error comes
  /// with a later step() that finds it, and that can be called again to go on.
  StepReport step();
  /// A whole cycle, whatever StepOptions::accumulate says: backward(micro_batch(i)) for i in
  /// [0, micro_steps), then a step. With OverflowPolicy::retry, a cycle whose gradients overflow
  /// is computed again at the lower loss scale (S15), up to 64 times, from the same state of
  /// default_generator(), of the running statistics of layers, and of the tensors given to
  /// restore_on_retry(); that waits for the device. Throws Error if a cycle is under way, and
  /// passes on what the function throws, after dropping the cycle.
  StepReport run_cycle(std::int64_t micro_steps,
                       const std::function<Loss(std::int64_t i)>& micro_batch);
  /// The same for a batch of `samples` in micro-batches of at most `micro_batch`: loss(first, last)
  /// is that of samples [first, last).
  StepReport run_batch(std::int64_t samples, std::int64_t micro_batch,
                       const std::function<Loss(std::int64_t first, std::int64_t last)>& loss);
  /// A whole cycle for a loss that couples the samples of its batch (S20), in the memory of one
  /// part of the graph: every part is encoded without recording, `loss` is taken of all encodings
  /// and gives their gradients, and every part is encoded once more to carry them to the parameters
  /// (gradient caching, Gao et al. 2021).
  ///
  /// encode(i), for i in [0, parts), returns [n_i, ...], equal off the first axis; it is called
  /// twice, the second time from the same state of default_generator(), and must return the same.
  /// loss(all) is given the [sum of n_i, ...] in order, and may have parameters of its own. Throws
  /// Error where a cycle is under way or the shapes do not fit; the cycle is dropped where a
  /// function throws.
  StepReport step_two_pass(std::int64_t parts, const std::function<Tensor(std::int64_t i)>& encode,
                           const std::function<Loss(const Tensor& all)>& loss);
  /// Tensors that a forward pass of your own changes: a retried cycle, and the second pass of
  /// step_two_pass(), begin with the values that they had before. (Those that layers of firn change
  /// are seen to.)
  void restore_on_retry(std::vector<Tensor> buffers);

  /// Ends a cycle that has fewer micro-steps than it should: as when an epoch is over (S04). Apply
  /// makes a step with the weight that has come together. Without any micro-step in the cycle,
  /// nothing happens; the report then says `accumulating` with 0 micro-steps, as it does for
  /// `drop`.
  StepReport flush(Partial partial = Partial::apply);
  /// The epoch for StepOptions::accumulate; 0 at first. The cycle under way keeps its length (S24).
  void set_epoch(std::int64_t epoch);
  /// Calls of step() that make the cycle under way, or where there is none, the next one.
  std::int64_t cycle_length() const;
  /// Calls of step() so far in the cycle under way: 0 where the next call is its first,
  /// cycle_length() - 1 where the next one ends it.
  std::int64_t cycle_position() const;
  /// What the cycle under way has come to so far, or where there is none, the last one: what
  /// step() has returned. After the replay of a graph, the report of the replayed step.
  StepReport last_report() const;
  /// What a log of an epoch needs, kept on the device. Waits for it.
  LossTotals loss_totals() const;
  /// What the options come to, in a line: "AdamW: 16 x 4 = 64 samples per step, f16 parameters with
  /// f32 masters, dynamic loss scale from 65536, clip norm 1, lr 0.001". Without `micro_batch`, the
  /// number of samples in one, "4 micro-steps per step".
  std::string describe(std::int64_t micro_batch = 0) const;

  /// Drops the cycle: no parameter has a gradient, and the weight is 0. step() has done so already.
  void zero_grad();

  /// The learning rate of the next step if that is applied. Waits for the device.
  double lr() const;
  /// From the next step on, a constant. Throws Error unless 0 <= lr < infinity.
  void set_lr(double lr);
  /// From the next step on, another schedule; its step 0 is the optimizer's first step.
  void set_lr(const Schedule& lr);

  /// The loss scale from the next micro-step on; 1 without loss scaling. Waits for the device.
  double loss_scale() const;
  /// Sets it; what the cycle has accumulated is expressed anew, exactly (S05). The counters of a
  /// dynamic scale begin anew. Throws Error unless it is a power of two within the limits of the
  /// policy ([2^-24, 2^24] for a fixed one), and where there is no loss scaling.
  void set_loss_scale(double scale);

  /// The parameters in the order given, groups one after another, each once.
  std::vector<Tensor> parameters() const;

  /// The moving averages of the parameters, in their order, f32 or f64; they share the optimizer's
  /// memory. Throws Error unless StepOptions::ema is set.
  std::vector<Tensor> ema() const;
  /// Puts the averages in the place of the weights until the guard is destroyed: for evaluation. No
  /// backward() or step() meanwhile.
  [[nodiscard]] AveragedWeights use_ema();

  /// How the accumulated gradients of each parameter look as `dtype`, f16 or bf16 (S10): to be
  /// asked before step(). Waits for the device.
  std::vector<GradientHealth> health(DType dtype = DType::f16) const;

  /// Takes the f32 masters of f16 and bf16 parameters from their present values, and begins moving
  /// averages anew at the weights. Weights that were merely loaded or edited need no call for the
  /// masters' sake: the next backward() or step() notices them, and every weight that is not its
  /// master rounded becomes the master. A restored state so keeps its masters to the bit (S28).
  void refresh_masters();

  /// All that a continued run needs, cycle included; the tensors share the optimizer's memory, so
  /// that copying into them restores it; gradients of parameters that the cycle has not reached are
  /// zero at the call and mean nothing later. Names: "parameters.<i>.weight", ".gradient",
  /// ".master",
  /// ".ema", ".momentum", ".first_moment", ...; "update_counts" (i64 per parameter: bias
  /// corrections count the updates of each), "touched", "cycle" (i64 on the CPU: cycles ended,
  /// epoch, length of the cycle under way, calls of step() and micro-steps in it, and the
  /// micro-steps at the last of these calls), "kind" (u8 on the CPU: a text); and "step_state",
  /// "loss_scale" and "schedule", whose bytes are this version's own. The next backward() or step()
  /// throws Error if what was copied in is not the state of an optimizer of this kind.
  std::vector<NamedState> state() const;

 protected:
  struct Impl;
  explicit Optimizer(std::unique_ptr<Impl> impl) noexcept;

 private:
  friend class AveragedWeights;
  friend std::vector<StepReport> step_all(std::initializer_list<Optimizer*>, SkipPolicy);
  friend std::vector<StepReport> flush_all(std::initializer_list<Optimizer*>, Partial, SkipPolicy);
  struct Joint;  // what the two share
  void require_loss(const Loss& loss) const;
  void run_backward(const Tensor& sum, const Tensor& weight, double host_weight,
                    const BackwardPass& pass);
  /// What is behind it. Throws Error if the optimizer was moved from.
  Impl& own() const;
  void require_no_cycle() const;
  void check_ready() const;
  StepReport end_cycle();
  StepReport progress() const;

  std::unique_ptr<Impl> impl_;
};

/// What the optimizers have as constructors; Options: SGDOptions, and so on.
template <class Options>
class OptimizerOf : public Optimizer {
 public:
  /// Throws Error, naming index, name and shape, for a list without parameters, a parameter that is
  /// not a leaf requiring a gradient, is given twice in different groups, shares memory with
  /// another one, or belongs to another optimizer; and for an option outside its range.
  explicit OptimizerOf(const std::vector<Tensor>& parameters, const Options& options = {},
                       const StepOptions& step = {});
  explicit OptimizerOf(std::vector<NamedTensor> parameters, const Options& options = {},
                       const StepOptions& step = {});
  explicit OptimizerOf(std::vector<ParamGroup> groups, const Options& options = {},
                       const StepOptions& step = {});
  explicit OptimizerOf(std::initializer_list<ParamGroup> groups, const Options& options = {},
                       const StepOptions& step = {});
};

/// step() of optimizers that share a LossScaler, whose scale moves once (S16). Each must be at the
/// same place of cycles of the same length. Throws as step() does, after all have ended their
/// cycle; and where they do not share one.
std::vector<StepReport> step_all(std::initializer_list<Optimizer*> optimizers,
                                 SkipPolicy policy = SkipPolicy::all);
/// flush() of the same; one without micro-steps in its cycle makes an empty step with the others.
std::vector<StepReport> flush_all(std::initializer_list<Optimizer*> optimizers,
                                  Partial partial = Partial::apply,
                                  SkipPolicy policy = SkipPolicy::all);

/// While it lives, the weights are their moving averages: see Optimizer::use_ema(). It puts the
/// weights back even if the optimizer is gone by then.
class AveragedWeights {
 public:
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;
  ~AveragedWeights();

 private:
  friend class Optimizer;
  explicit AveragedWeights(Optimizer::Impl& impl);

  std::weak_ptr<Optimizer::Impl*> optimizer_;
  std::vector<Tensor> parameters_, weights_;
};

}  // namespace firn::optim
