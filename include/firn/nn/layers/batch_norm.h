// Batch normalisation that takes account of micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "firn/nn/module.h"

namespace firn {
struct Moments;  // channel_norm.h
namespace autograd {
class NeedsWholeBatch;
}
}  // namespace firn

namespace firn::nn {

/// Chooses the statistics that normalise a training pass, and the update of running statistics, for
/// an optimizer that accumulates gradients over micro-batches. In the first two modes a micro-batch
/// is normalised by its own mean and variance. The option is called `accumulation`:
/// nn::BatchNorm2d(c, {.accumulation = nn::BatchNormMode::per_step}).
enum class BatchNormMode : std::uint8_t {
  /// Each forward pass in training mode updates running statistics, as in PyTorch. Under
  /// accumulation they average over small batches, change once per micro-step, and change for
  /// skipped steps too. A layer warns once, in its first cycle of several micro-steps; so does each
  /// clone. In a GAN the generator's forward pass through the discriminator counts as well, and a
  /// Freeze guard does not prevent it; the discriminator's eval() does.
  per_micro_batch,
  /// Running statistics are updated once per optimizer step, to (1 - momentum) * running + momentum
  /// * (mean and unbiased variance of all samples of the cycle). The result is exact for any
  /// division into micro-batches. Cycles that are skipped or dropped, and tries that overflow and
  /// are retried, do not change them. A sample belongs to the cycle whose backward() reaches the
  /// layer, and counts once in it even if its graph is retained and back-propagated twice. A
  /// forward pass without backward() changes nothing; a backward pass without an optimizer counts
  /// as a cycle.
  ///
  /// The statistics follow the cycles of one optimizer: the one that trains the layer's weight, or
  /// if there is none, its bias. Passes of other optimizers, such as those of a GAN's generator
  /// through the discriminator, leave them alone. If no optimizer trains the layer, the first cycle
  /// that reaches it has it until that cycle ends or is dropped.
  per_step,
  /// Works in run_batch() of an optimizer in exact mode (StepOptions::exact), on one rank or
  /// several. Mean and variance of the whole batch normalise each sample, forward and backward. So
  /// four chunks of 16 train as one batch of 64 does. Running statistics are updated as in
  /// per_step. A training pass elsewhere throws Error.
  ///
  /// All chunks of a rank advance together from one such layer to the next. So a rank needs memory
  /// for the activations and gradients of all its chunks at a time; checkpoint() makes activations
  /// fewer. The loss must call the same layers in the same order for each chunk, else run_batch()
  /// throws Error.
  ///
  /// Chunks are interleaved inside of the function that computes the loss: when one comes to such a
  /// layer, the next one begins. So the function must not hold a lock while it calls the model, and
  /// it finds shared state as the last chunk has left it. Guards such as NoGrad, Autocast and
  /// Freeze belong to one chunk. train() and eval() must be undone before the next such layer, else
  /// it throws Error. Each chunk has a thread; they never run at the same time.
  ///
  /// MicroBatch::between, and gradients that ranks shard (DistributeOptions::zero of 2 and more),
  /// are refused.
  whole_batch,
};

struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance
  /// Share of a new batch in the running statistics, in [0, 1]. With nullopt they are the plain
  /// average over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;  ///< the layer has weight and bias
  bool track = true;   ///< keep running statistics; if false, evaluation uses those of its batch
  /// Mode, which chooses the statistics.
  BatchNormMode accumulation = BatchNormMode::per_micro_batch;
  DType dtype = f32;
  Device device = default_device();
};

namespace detail {
class BatchStatistics;
}

/// y = (x - mean) / sqrt(var + eps) * weight + bias per channel (Ioffe & Szegedy 2015). In training
/// mode mean and variance are those of x over all axes but 1, in evaluation mode the running ones.
/// weight [c] starts at 1, bias [c] at 0, running_mean [c] at 0, running_var [c] at 1.
///
/// Running statistics are f32 (f64 in a layer of f64), also in a layer of f16 or bf16 and after
/// to(f16).
class BatchNorm : public Module {
 public:
  /// Throws Error for an input of another rank or number of channels. In training mode it also
  /// throws for a single value per channel, which has no variance. With BatchNormMode::whole_batch
  /// the whole batch must have more, and a training pass outside of an exact run_batch() throws.
  Tensor forward(const Tensor& x) override;
  std::string type_name() const override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  /// The size of axis 1.
  std::int64_t channels() const noexcept { return c_; }
  /// The mode in force.
  BatchNormMode accumulation() const noexcept { return accumulation_; }
  /// Changes the mode. Weights and running statistics stay; statistics pooled in the current cycle
  /// are lost.
  void set_accumulation(BatchNormMode mode);
  /// Makes the layer compute a GroupNorm: see convert_to_group_norm().
  void become_group_norm(std::int64_t groups);
  /// True if become_group_norm() was called.
  bool is_group_norm() const noexcept { return groups_ > 0; }

  Parameter weight;            ///< [c], or undefined
  Parameter bias;              ///< [c], or undefined
  Buffer running_mean;         ///< [c], or undefined, as all that follow
  Buffer running_var;          ///< [c]
  Buffer num_batches_tracked;  ///< i64 []: updates of the running statistics
  /// In per_step and whole_batch mode only: mean and sum of squared deviations of the cycle so far,
  /// f64 [2, c], and the number of values that they cover, f64 [1]. A file or module without them
  /// can be loaded. A cycle finds them through the layer's trained weight. If no optimizer trains
  /// it, run one backward pass after load_run() in mid-cycle.
  Buffer pooled, pooled_count;

 protected:
  /// `what` is the class's name; inputs have a rank of `low` to `high`. Throws Error unless c > 0,
  /// eps >= 0 and 0 <= momentum <= 1.
  BatchNorm(const char* what, int low, int high, std::int64_t c, const BatchNormOptions& options);

 private:
  friend class RecomputedStatistics;
  void was_separated() override;
  void check_input(const Tensor& x) const;
  detail::BatchStatistics& statistics();
  Tensor train_forward(const Tensor& x);
  Tensor normalize_in_batch(const Tensor& x, Moments& moments, double& count);

  const char* what_;
  int low_, high_;
  std::int64_t c_, groups_ = 0;
  double eps_;
  std::optional<double> momentum_;
  BatchNormMode accumulation_;
  std::shared_ptr<detail::BatchStatistics> statistics_;  ///< shared by copies, as the buffers are
  std::shared_ptr<const autograd::NeedsWholeBatch> needs_batch_;  ///< in whole_batch mode
  std::shared_ptr<const std::string> name_;  ///< names the layer to interleaved chunks
};

/// x [n, c] or [n, c, l].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(std::int64_t c, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", 2, 3, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

/// x [n, c, h, w].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(std::int64_t c, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", 4, 4, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

/// x [n, c, d, h, w].
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(std::int64_t c, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm3d", 5, 5, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

/// Sets the mode of every BatchNorm in `m` (BatchNorm::set_accumulation()). Returns their number.
std::int64_t convert_batch_norm(Module& m, BatchNormMode mode);

/// Makes every BatchNorm in `m` a GroupNorm of `groups` groups, with its weight, bias and eps, and
/// without running statistics. A GroupNorm depends on no other sample, so its result is the same
/// for any micro-batch (Wu & He 2018). The layers remain the same objects: members held by value
/// can be converted, and an optimizer keeps their parameters. Only type_name() and the computation
/// change. Retrain the network afterwards. If `groups` does not divide a layer's channels, throws
/// Error before any layer changes. Returns the number of layers.
std::int64_t convert_to_group_norm(Module& m, std::int64_t groups);

/// While it lives, the running statistics of every BatchNorm in a module are those of its present
/// weights. Averages of the weights need that, since they never ran in training:
///
///   const optim::AveragedWeights averaged(opt);
///   const nn::RecomputedStatistics statistics(net, [&] {
///     for (const auto& batch : loader.epoch(0)) net(batch.x());
///   });
///   evaluate(net);  // or save it
///
/// Mean and variance are the means of those of the batches, as PyTorch's update_bn() computes them.
/// The destructor puts the statistics of the training back. Several such objects of a module may be
/// destroyed in any order. The module must outlive the objects.
class RecomputedStatistics {
 public:
  /// Calls `passes` once, without gradients. BatchNorm layers are in training mode meanwhile, and
  /// other layers in the mode that they have. Throws what `passes` throws, and Error, naming it, if
  /// a layer has seen no batch; the statistics are then as before.
  [[nodiscard]] RecomputedStatistics(Module& m, const std::function<void()>& passes);
  ~RecomputedStatistics();
  RecomputedStatistics(const RecomputedStatistics&) = delete;
  RecomputedStatistics& operator=(const RecomputedStatistics&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< held by this object alone
};

}  // namespace firn::nn
