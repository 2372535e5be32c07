// Gradients as return values: of outputs with respect to inputs, and gradients of gradients.
#pragma once

#include <optional>
#include <vector>

#include "firn/autograd.h"
#include "firn/tensor.h"

namespace firn {

struct GradOptions {
  /// Initial gradients, one for each output, of its shape, dtype and device. An undefined one
  /// counts as 1, and so does each of an empty list: its output must have one element.
  std::vector<Tensor> initial_gradients = {};
  /// Records a graph for the gradients, so that a loss may be computed from them.
  bool create_graph = false;
  /// Keeps the saved tensors of the graph; unset: as create_graph. False with create_graph frees
  /// them, as in PyTorch: a gradient of the result that passes through that graph is then an Error.
  std::optional<bool> retain_graph = {};
  /// Gives undefined gradients for inputs that no output depends on; else they are an Error.
  bool allow_unused = false;
};

/// Returns the gradients of the outputs, times their initial gradients and added up, with respect
/// to each input. Inputs are leaves, or results of operations. No leaf's own gradient changes. A
/// gradient has its input's shape and dtype. Throws Error for an output or an input that requires
/// no gradient, with allow_unused too.
///
///   // WGAN-GP (Gulrajani et al. 2017): the norm of the critic's gradient is to be 1.
///   const Tensor slope = grad({sum(critic(x))}, {x}, {.create_graph = true})[0];
///   const Tensor penalty = mean(square(norm(flatten(slope, 1), 1) - 1.0));
///   // A Hessian times a vector, without the Hessian.
///   const Tensor hv = grad({sum(grad({loss}, {w}, {.create_graph = true})[0] * v)}, {w})[0];
///
/// With create_graph the backward functions are recorded as operations, which have gradients again:
/// any order is possible. They take more memory than the backward kernels, and round differently.
/// Throws Error, naming the operation, for one that does not support this;
/// docs/from-pytorch.md lists them. Throws Error as backward() does, too.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

}  // namespace firn
