// Automatic differentiation: an eager tape, walked backwards once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn {

struct BackwardOptions {
  /// Gradient of the objective with respect to `output`, of its shape. Undefined: ones, and
  /// `output` must be a scalar.
  Tensor seed;
  /// Keep what the graph saved, so that backward() can run through it again.
  bool retain_graph = false;
};

/// Adds d(output)/d(leaf) * seed to the gradient of every leaf that `output` was computed from.
/// Nodes run in reverse order of their recording: the same graph gives the same bits.
/// Throws Error where `output` requires no gradient, where a part of the graph was freed by an
/// earlier backward(), or where something saved was modified in place since (both ops are named).
/// Where it throws half-way, leaves may have taken a part of their gradients: set_grad({}) them
/// (an optimizer refuses such a cycle until zero_grad()).
void backward(const Tensor& output, const BackwardOptions& options = {});

/// Whether ops executed by this thread are recorded.
bool grad_enabled() noexcept;

/// While alive, ops of this thread are not recorded.
class NoGrad {
 public:
  NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// While alive, the first op of this thread that produces a NaN or an infinity from the forward or
/// the backward pass throws Error naming the op. Reads every result: slow, for debugging.
class AnomalyMode {
 public:
  AnomalyMode() noexcept;
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool previous_;
};

/// Runs when the gradient with respect to `t` of one backward() is complete; what it returns (same
/// shape) replaces it, an undefined tensor leaves it. Throws where `t` requires no gradient. The
/// number returned names the hook for remove_hook().
using GradHook = std::function<Tensor(const Tensor& grad)>;
int add_hook(const Tensor& t, GradHook hook);
void remove_hook(const Tensor& t, int id);

/// What a custom function's backward is given.
struct CustomBackward {
  const Tensor& grad;             ///< gradient of the output
  std::span<const Tensor> saved;  ///< what was saved, checked for in-place edits
};

/// Records a function of your own: `output` was computed from `inputs` (under NoGrad), and
/// `backward` returns a gradient for each input (undefined for none), each of its input's shape.
/// `saved` is kept until backward has run. Returns the tensor to use further.
///
///   Tensor cube(const Tensor& x) {
///     Tensor y;
///     { NoGrad guard; y = x * x * x; }
///     return custom("cube", {x}, y, {x}, [](const CustomBackward& b) {
///       return std::vector<Tensor>{3.0 * b.saved[0] * b.saved[0] * b.grad};
///     });
///   }
Tensor custom(std::string name, std::vector<Tensor> inputs, const Tensor& output,
              std::vector<Tensor> saved,
              std::function<std::vector<Tensor>(const CustomBackward&)> backward);

}  // namespace firn
