// The optimizer: owns how gradients are accumulated, averaged, checked and applied.
//
//   optim::AdamW opt(net.parameters(), {.lr = 1e-3, .weight_decay = 0.01});
//   opt.backward(cross_entropy(net(x), y));  // adds the gradient of the sum, and the loss's weight
//   if (opt.step()) { ... }                  // divides by the weight, checks, updates, zeroes
//
// backward() can be called several times before a step(): the step then sees the gradient of the
// mean over all of their samples, however unevenly they were split.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/optim/schedule.h"
#include "firn/optim/step_report.h"
#include "firn/tensor.h"

namespace firn {
struct Loss;  // losses.h; all that is asked of it is its two tensors
}

namespace firn::optim {

/// Parameters that are updated alike.
struct ParamGroup {
  std::vector<Tensor> parameters;
  double lr_scale = 1;                      ///< multiplies the optimizer's learning rate; 0 or more
  std::optional<double> weight_decay = {};  ///< instead of the optimizer's
};

/// A tensor of the optimizer's state, by name.
struct NamedState {
  std::string name;
  Tensor tensor;
};

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
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Back-propagates loss.sum and adds loss.weight to the cycle's weight. Gradients are added up in
  /// the arenas. Throws Error where the loss has no gradient, is not a scalar f32 or f64, or lives
  /// on another device; and where parameters have got gradients from a plain loss.backward(), which
  /// carries no weight. If the backward pass itself throws, the cycle is lost: call zero_grad().
  void backward(const Loss& loss);
  /// The same for any scalar: `sum` is a sum over samples and `weight` their number. With the
  /// default weight, one backward() and a step() apply the gradient of `sum` as it is.
  void backward(const Tensor& sum, double weight = 1);

  /// Ends the cycle: divides the accumulated gradients by the accumulated weight, checks that all
  /// are finite, clips, updates, and sets them to zero. A parameter that received no gradient in
  /// the cycle is not touched: no decay, no momentum. If a gradient is not finite, or the weight is
  /// 0, the step is skipped and nothing but the gradients changes. Throws as backward() does.
  StepReport step();

  /// Drops the cycle: gradients and weight are zero. step() has done so already.
  void zero_grad();

  /// The learning rate of the next step if that is applied. Waits for the device.
  double lr() const;
  /// From the next step on, a constant. Throws Error unless 0 <= lr < infinity.
  void set_lr(double lr);
  /// From the next step on, another schedule; its step 0 is the optimizer's first step.
  void set_lr(const Schedule& lr);

  /// The parameters in the order given, groups one after another, each once.
  std::vector<Tensor> parameters() const;

  /// Takes the f32 masters of f16 and bf16 parameters from their present values. To be called after
  /// such weights were loaded or edited; f32 and f64 parameters need nothing.
  void refresh_masters();

  /// All that a continued run needs, cycle included; the tensors share the optimizer's memory, so
  /// that copying into them restores it. Names: "parameters.<i>.weight", ".gradient", ".master",
  /// ".momentum", ".first_moment", ...; "update_counts" (i64 per parameter: bias corrections count
  /// the updates of each), "touched", and "step_state", whose bytes are this version's own.
  std::vector<NamedState> state() const;

 protected:
  struct Impl;
  explicit Optimizer(std::unique_ptr<Impl> impl) noexcept;

 private:
  void run_backward(const Tensor& sum, const Tensor& weight, double host_weight);

  std::unique_ptr<Impl> impl_;
};

}  // namespace firn::optim
