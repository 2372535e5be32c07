// Automatic differentiation: an eager tape, walked backwards once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn {

namespace autograd {
class BatchPartScope;
}  // namespace autograd

struct BackwardOptions {
  /// Initial gradient: the objective's gradient with respect to `output`, with its shape, dtype and
  /// device. If undefined it is 1, and `output` must have one element.
  Tensor initial_gradient = {};
  /// Keeps the saved tensors of the graph, so that backward() can run through it again.
  bool retain_graph = false;
};

/// Adds d(output)/d(leaf) * `initial_gradient` to the gradient of every leaf that `output` was
/// computed from. Nodes run in reverse order of their recording: the same graph gives the same
/// bits. Throws Error if `output` requires no gradient, if `initial_gradient` does not fit, or if
/// an earlier backward() freed a part of the graph. Also throws if a saved tensor was modified in
/// place since; the message names both ops. A hook or a custom function may record another graph
/// under EnableGrad, and call backward() on it. This inner call throws Error if it reaches nodes of
/// the outer pass.
///
/// After an error, some leaves may hold a part of their gradients: clear those with set_grad({}).
/// An optimizer refuses such a cycle until zero_grad(). Gradients that earlier ops have added stay.
/// A leaf that had no gradient before the failing op still has none.
void backward(const Tensor& output, const BackwardOptions& options = {});

/// Returns true if ops that this thread executes are recorded.
bool grad_enabled() noexcept;

/// While alive, ops of this thread are not recorded. Guards end in reverse order, in one thread.
class NoGrad {
 public:
  [[nodiscard]] NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// While alive, ops of this thread are recorded, inside a NoGrad too. Hooks and backward
/// functions of custom() run with recording off: this guard switches it on for a graph of their
/// own. Guards nest: the destructor restores the previous setting.
class EnableGrad {
 public:
  [[nodiscard]] EnableGrad() noexcept;
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};

/// While alive, these leaves receive no gradient in any thread. Ops recorded meanwhile treat them
/// as constants. A backward pass meanwhile adds nothing to their gradients, even through an older
/// graph. The parameters of an optimizer can be frozen too. Guards nest, and may end in any order.
/// For a GAN's generator step:
///
///   const Freeze guard(discriminator.parameters());
///   opt_g.backward(loss(discriminator(generator(z))));
class Freeze {
 public:
  /// Tensors that require no gradient are left out. Throws Error for one that is undefined or is
  /// the result of an op.
  [[nodiscard]] explicit Freeze(std::vector<Tensor> leaves);
  ~Freeze();
  Freeze(const Freeze&) = delete;
  Freeze& operator=(const Freeze&) = delete;

 private:
  friend class autograd::BatchPartScope;
  void set(bool on) const noexcept;

  autograd::BatchPartScope* part_;  ///< the part of a batch that made this guard; usually null
  std::vector<Tensor> frozen_;
};

/// While alive, the first op of this thread whose forward or backward pass produces a NaN or an
/// infinity throws Error naming the op. Reads every result: slow, for debugging. Nests as NoGrad.
class AnomalyMode {
 public:
  [[nodiscard]] AnomalyMode() noexcept;
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool previous_;
};

/// Runs once in each backward() that reaches `t`, when the gradient with respect to `t` is complete
/// for that pass. The hook may return a new gradient of the same shape, dtype and device, which
/// replaces the one it received; an undefined tensor keeps it. Optimizer::backward() passes a hook
/// the gradient of loss.sum times a power of two. This factor depends on loss scale and weight, and
/// may change within a cycle. It is 1 without loss scaling. StepOptions clips the averaged gradient
/// instead. backward() throws Error if the returned gradient does not fit, or if the hook writes
/// the gradient in place. A hook must not destroy the optimizer whose backward() runs.
using GradHook = std::function<Tensor(const Tensor& grad)>;
/// Adds a hook after the existing hooks of `t`. Returns its number among the hooks of `t`, for
/// remove_hook(); no hook of `t` gets it again. Hooks of other tensors have the same numbers. A
/// hook that is added during a backward() runs from the next one on. The graph of `t` owns the
/// hook: a hook that captures `t` or a result of it keeps that graph alive until remove_hook().
/// Throws Error if `t` requires no gradient or the hook is empty.
int add_hook(const Tensor& t, GradHook hook);
/// Removes the hook with this number: it does not run any more. A hook may remove itself while it
/// runs. Throws Error if `t` never had a hook `id`, or if it was removed before.
void remove_hook(const Tensor& t, int id);

/// Arguments of a custom function's backward.
struct CustomBackward {
  const Tensor& grad;             ///< gradient of the output; an in-place write is an Error
  std::span<const Tensor> saved;  ///< the saved tensors; an in-place write since is an Error
};

/// Records a function of your own: `output` was computed from `inputs` under NoGrad. `backward`
/// returns one gradient for each input, of the input's shape and device, or an undefined tensor for
/// none; other floating dtypes are cast. `backward` runs under the autocast of the call of
/// custom(), and without recording. `saved` is kept until backward has run. Use the returned tensor
/// in place of `output`. Throws Error if `output` is part of a graph; backward() throws one that
/// names the function if the gradients do not fit. An Error of an op in `backward` names it, too.
///
///   Tensor cube(const Tensor& x) {
///     Tensor y;
///     { NoGrad guard; y = x * x * x; }
///     return custom("cube", {x}, y, {x}, [](const CustomBackward& b) {
///       return std::vector<Tensor>{3.0 * b.saved[0] * b.saved[0] * b.grad};
///     });
///   }
///
/// To compute a part of a model again in the backward pass, use checkpoint() (checkpoint.h).
Tensor custom(std::string name, std::vector<Tensor> inputs, const Tensor& output,
              std::vector<Tensor> saved,
              std::function<std::vector<Tensor>(const CustomBackward&)> backward);

}  // namespace firn
