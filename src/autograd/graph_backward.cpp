#include "autograd/graph_backward.h"

#include <algorithm>

namespace firn::autograd {

Tensor GraphBackward::in_graph(const Tensor& value, const Ref<Node>& node) {
  Tensor t = value.detach();
  if (node) t.impl()->node = Ref<GraphNode>(node.get());
  return t;
}

NodeSet path_to(const std::vector<Tensor>& ends, const std::vector<Tensor>& outputs) {
  NodeSet path, seen;
  for (const Tensor& t : ends) path.insert(node_of(t));
  std::vector<Node*> order, left;
  const auto visit = [&](Node* n) {
    if (n && seen.insert(n).second) left.push_back(n);
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
  for (const Node* n : order)
    for (int i = 0; i < n->inputs.size(); ++i) {
      const SmallList<Ref<Node>>& inputs = n->inputs;
      if (inputs[i] && path.contains(inputs[i].get())) path.insert(n);
    }
  return path;
}

}  // namespace firn::autograd
