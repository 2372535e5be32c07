// Recorded backward functions. grad() calls them with create_graph, so that a gradient has a
// graph of its own. An op passes one together with its backward function; it is written in
// operations:
//
//   return record("matmul", y, {&a, &b}, {Saved::input(0), Saved::input(1)},
//                 with_again([](Backward& back) { ... kernels ... },
//                            [](GraphBackward& back) {
//                              back.add(0, matmul(back.grad(), transpose(back.input(1, 1), -1,
//                              -2)));
//                              ...
//                            }));
#pragma once

#include <utility>
#include <vector>

#include "autograd/node.h"
#include "firn/thread_context.h"

namespace firn::autograd {

/// The argument of a recorded backward function.
class GraphBackward {
 public:
  struct Contribution {
    int input;
    Tensor gradient;
  };

  GraphBackward(Node& node, Tensor grad) : node_(node), grad_(std::move(grad)) {}

  /// The gradient of the output, in its graph.
  const Tensor& grad() const noexcept { return grad_; }
  /// Returns true if input i takes a gradient.
  bool needs(int i) const noexcept { return node_.inputs[i] && node_.inputs[i]->takes_gradient(); }
  /// The i-th saved tensor, without its graph. Throws Error if it was modified in place since.
  const Tensor& saved(int i) const { return saved_by(node_, i); }
  /// The i-th saved tensor, which is the value of input `input`, in the graph.
  Tensor input(int input, int i) const { return in_graph(saved(i), node_.inputs[input]); }
  /// The i-th saved tensor, which is the value of the output, in the graph.
  Tensor output(int i) const { return in_graph(saved(i), Ref<Node>(&node_)); }
  const Shape& input_shape(int i) const noexcept { return node_.inputs[i]->shape; }
  DType input_dtype(int i) const noexcept { return node_.inputs[i]->dtype; }
  /// Adds `gradient` to the gradient of input i if that takes one. The input must broadcast to its
  /// shape, and its dtype must be floating.
  void add(int i, const Tensor& gradient) {
    if (needs(i)) added_.push_back({i, gradient});
  }
  const std::vector<Contribution>& added() const noexcept { return added_; }

 private:
  static Tensor in_graph(const Tensor& value, const Ref<Node>& node);

  Node& node_;
  Tensor grad_;
  std::vector<Contribution> added_;
};

/// A backward function together with its recorded form.
template <class Fn, class Again>
struct WithAgain : Fn {
  Again again;
};
template <class Fn, class Again>
WithAgain<Fn, Again> with_again(Fn fn, Again again) {
  return {std::move(fn), std::move(again)};
}

/// The nodes behind `outputs` from which one of `ends` can be reached.
using NodeSet = std::unordered_set<const Node*>;
NodeSet path_to(const std::vector<Tensor>& ends, const std::vector<Tensor>& outputs);

/// While alive, only the nodes of `path` take gradients in this thread.
class PathScope {
 public:
  explicit PathScope(const NodeSet* path) noexcept
      : before_(std::exchange(thread_context.gradient_path, path)) {}
  ~PathScope() { thread_context.gradient_path = before_; }
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  const NodeSet* before_;
};

/// Computes the gradients of `inputs` along a path, by the backward functions. The gradients of
/// leaves stay unchanged. A result is undefined for an input that is not reached.
std::vector<Tensor> gradients_along(const NodeSet& path, const std::vector<Tensor>& outputs,
                                    const std::vector<Tensor>& seeds,
                                    const std::vector<Tensor>& inputs, bool retain_graph);

/// Returns the number of a new pass. Hooks that are added from now on do not run in it.
std::uint64_t begin_pass() noexcept;
/// Runs the hooks of a node on its gradient in a pass, which they may replace. A replacement keeps
/// its graph only if `in_graph`. The node must have hooks.
void run_hooks(const Node& n, Tensor& gradient, std::uint64_t pass, bool in_graph);

/// Returns `given` if it fits the output as its initial gradient, or 1 for an output of one
/// element.
Tensor initial_gradient_for(const char* op, const Tensor& output, const Tensor& given);

}  // namespace firn::autograd
