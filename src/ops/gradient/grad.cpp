// grad(). Without create_graph it is a backward pass that keeps the gradients of the inputs. With
// it each node's recorded backward function runs, in the same order.
#include "firn/grad.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "autograd/graph_backward.h"
#include "autograd/reading.h"
#include "firn/thread_context.h"
#include "ops/common.h"
#include "ops/gradient/again.h"

namespace firn {

using namespace ops;
using autograd::GraphBackward;
using autograd::Node;

namespace {

constexpr const char* kOp = "grad";

/// The gradients that have arrived at nodes, and the node to run next.
class Arrived {
 public:
  void add(Node* n, const Tensor& gradient) {
    const Tensor fitted = cast(summed_to(gradient, n->shape), n->dtype);
    Tensor& sum = at_[n];
    if (!sum.defined()) {
      sum = fitted;
      queue_.push_back(n);
      std::push_heap(queue_.begin(), queue_.end(), earlier);
    } else {
      sum = firn::add(sum, fitted);
    }
  }
  bool empty() const noexcept { return queue_.empty(); }
  Node* next() {
    std::pop_heap(queue_.begin(), queue_.end(), earlier);
    Node* const n = queue_.back();
    queue_.pop_back();
    return n;
  }
  Tensor& operator[](Node* n) { return at_[n]; }
  Tensor of(Node* n) const {
    const auto found = at_.find(n);
    return found == at_.end() ? Tensor() : found->second;
  }

 private:
  static bool earlier(const Node* a, const Node* b) noexcept { return a->sequence < b->sequence; }

  std::unordered_map<Node*, Tensor> at_;
  std::vector<Node*> queue_;
};

void run_recorded(Node& n, const Tensor& gradient, Arrived& arrived) {
  FIRN_CHECK(!n.freed, n.op, "pass {.retain_graph = true} to the backward() before",
             "an earlier backward() freed what this part of the graph had saved");
  FIRN_CHECK(!n.segment, kOp, "call the function itself where gradients of gradients are needed",
             "{} was recorded by checkpoint(), which has no recorded backward pass", n.op);
  require_shown_weights(n);
  const runtime::OpScope op(n.op);
  const runtime::ModuleScope module(n.module);
  GraphBackward b(n, gradient);
  FIRN_CHECK(n.run_recorded(b), kOp, "write it in other operations, or leave create_graph off",
             "{} has no second derivative", n.op);
  for (const GraphBackward::Contribution& c : b.added())
    arrived.add(n.inputs[c.input].get(), c.gradient);
}

bool goes_on(const Node& n) {
  const autograd::SmallList<Ref<Node>>& inputs = n.inputs;
  for (int i = 0; i < inputs.size(); ++i)
    if (inputs[i] && inputs[i]->takes_gradient()) return true;
  return false;
}

/// Returns the gradients with a graph.
std::vector<Tensor> recorded_along(const autograd::NodeSet& path,
                                   const std::vector<Tensor>& outputs,
                                   const std::vector<Tensor>& seeds,
                                   const std::vector<Tensor>& inputs, bool retain_graph) {
  const EnableGrad recording;
  const autograd::OpMode::Plain plain;
  const autograd::PathScope scope(&path);
  const std::uint64_t pass = autograd::begin_pass();
  Arrived arrived;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (Node* const root = autograd::node_of(outputs[i]); path.contains(root))
      arrived.add(root, seeds[i]);
  while (!arrived.empty()) {
    Node* const n = arrived.next();
    if (n->hooks) autograd::run_hooks(*n, arrived[n], pass, true);
    if (!goes_on(*n)) continue;
    run_recorded(*n, Tensor(arrived[n]), arrived);
    if (retain_graph) continue;
    n->saved.clear();
    n->freed = true;
  }
  std::vector<Tensor> out;
  for (const Tensor& t : inputs) out.push_back(arrived.of(autograd::node_of(t)));
  return out;
}

}  // namespace

Tensor ops::summed_to(const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return t;
  Axes axes;
  const int lead = t.rank() - shape.size();
  for (int i = 0; i < t.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && t.size(i) != 1)) axes.push_back(i);
  return reshape(axes.empty() ? t : sum(t, axes), shape);
}

Tensor ops::sum_of_channels(const Tensor& t) {
  Axes axes;
  for (int i = 0; i < t.rank(); ++i)
    if (i != 1) axes.push_back(i);
  return sum(t, axes);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options) try {
  FIRN_CHECK(!outputs.empty() && !inputs.empty(), kOp, "give both", "{} outputs and {} inputs",
             outputs.size(), inputs.size());
  FIRN_CHECK(
      options.initial_gradients.empty() || options.initial_gradients.size() == outputs.size(), kOp,
      "give one initial gradient for each output", "{} initial gradients for {} outputs",
      options.initial_gradients.size(), outputs.size());
  FIRN_CHECK(!thread_context.trace, kOp, "call it when checkpoint() has returned",
             "it was called by a function that is given to checkpoint()");
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require_defined(kOp, outputs[i]);
    FIRN_CHECK(autograd::node_of(outputs[i]), kOp,
               "compute it from tensors with set_requires_grad(), outside of NoGrad",
               "output {}, {}, requires no gradient", i, describe(outputs[i]));
    seeds.push_back(autograd::initial_gradient_for(
        kOp, outputs[i],
        options.initial_gradients.empty() ? Tensor() : options.initial_gradients[i]));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_defined(kOp, inputs[i]);
    FIRN_CHECK(autograd::node_of(inputs[i]), kOp, "call set_requires_grad() before it is used",
               "input {}, {}, requires no gradient", i, describe(inputs[i]));
  }
  const autograd::NodeSet path = autograd::path_to(inputs, outputs);
  const bool retains = options.retain_graph.value_or(options.create_graph);
  const auto gradients = options.create_graph ? recorded_along : autograd::gradients_along;
  std::vector<Tensor> out = gradients(path, outputs, seeds, inputs, retains);
  for (std::size_t i = 0; i < out.size(); ++i)
    FIRN_CHECK(out[i].defined() || options.allow_unused, kOp,
               "leave it out of the inputs, or set allow_unused",
               "no output was computed from input {}, {}", i, describe(inputs[i]));
  return out;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn
