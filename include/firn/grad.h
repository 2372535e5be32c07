// Gradients as results: of outputs with respect to inputs, and gradients of gradients.
#pragma once

#include <optional>
#include <vector>

#include "firn/autograd.h"
#include "firn/tensor.h"

namespace firn {

struct GradOptions {
  /// One for each output, as BackwardOptions::seed; empty, or undefined tensors: 1.
  std::vector<Tensor> seeds = {};
  /// The gradients have a graph of their own, so that a loss may be made of them.
  bool create_graph = false;
  /// Keeps what the graph saved; unset: as create_graph. False with create_graph frees it, as in
  /// PyTorch: a gradient of the result that passes through that graph is then an Error.
  std::optional<bool> retain_graph = {};
  /// Undefined gradients for inputs that no output was computed from; else they are an Error.
  bool allow_unused = false;
};

/// The gradients of the sum of all outputs (times their seeds) with respect to each input: leaves,
/// or results of operations. No leaf's own gradient changes. A gradient has its input's shape and
/// dtype.
///
///   // WGAN-GP (Gulrajani et al. 2017): the norm of the critic's gradient is to be 1.
///   const Tensor slope = grad({sum(critic(x))}, {x}, {.create_graph = true})[0];
///   const Tensor penalty = mean(square(norm(flatten(slope, 1), 1) - 1.0));
///   // A Hessian times a vector, without the Hessian.
///   const Tensor hv = grad({sum(grad({loss}, {w}, {.create_graph = true})[0] * v)}, {w})[0];
///
/// With create_graph the backward functions are recorded as operations, which have gradients again:
/// any order is possible. They keep more memory than kernels do, and give rounding errors of their
/// own. Operations of which this is not built are an Error that names them;
/// docs/from-pytorch.md lists them. Throws Error as backward() does, too.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

}  // namespace firn
