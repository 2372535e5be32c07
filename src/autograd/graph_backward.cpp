#include "autograd/graph_backward.h"

#include <algorithm>
#include <limits>

namespace firn::autograd {

Tensor GraphBackward::in_graph(const Tensor& value, const Ref<Node>& node) {
  Tensor t = value.detach();
  if (node) t.impl()->node = Ref<GraphNode>(node.get());
  return t;
}

NodeSet path_to(const std::vector<Tensor>& ends, const std::vector<Tensor>& outputs) {
  NodeSet path, seen;
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const Tensor& t : ends) {
    path.insert(node_of(t));
    first = std::min(first, node_of(t)->sequence);
  }
  std::vector<Node*> order, left;
  const auto visit = [&](Node* n) {
    // Numbers fall on the way back: no end lies behind a node that is older than all ends.
    if (n && n->sequence >= first && seen.insert(n).second) left.push_back(n);
  };
  for (const Tensor& t : outputs) visit(node_of(t));
  while (!left.empty()) {
    Node* const n = left.back();
    left.pop_back();
    order.push_back(n);
    for (int i = 0; i < n->inputs.size(); ++i) visit(n->inputs[i].get());
  }
  // A node's inputs have smaller numbers, so each is decided before its consumers.
  std::sort(order.begin(), order.end(),
            [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  for (const Node* n : order) {
    const SmallList<Ref<Node>>& inputs = n->inputs;
    for (int i = 0; i < inputs.size(); ++i)
      if (inputs[i] && path.contains(inputs[i].get())) path.insert(n);
  }
  return path;
}

}  // namespace firn::autograd
