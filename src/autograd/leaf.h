// Where a gradient is collected: in the buffer of an inner node, in a leaf's own memory, or in the
// arena that an optimizer has given it.
#pragma once

#include "autograd/node.h"

namespace firn::autograd {

/// target = x + beta * target.
void add_into(const Tensor& target, const Tensor& x, float beta);
/// New memory for the gradient of a node's output.
Tensor buffer_for(const Node& n);
/// Makes the node's `buffer` safe to write, in the node's memory format and without another owner.
Sink exclusive(Tensor& buffer, const Node& n);

/// If a collector keeps the leaf's memory, the leaf has some from now on.
void borrow_arena(Leaf& leaf);
/// Where the next contribution to the leaf's gradient goes, and what becomes of those before it.
Sink leaf_sink(Leaf& leaf);
bool has_gradient(const Leaf& leaf) noexcept;
/// The leaf had no gradient, and whoever was to write one has thrown: it has none again.
void take_back(Leaf& leaf) noexcept;
/// Adds x to the leaf's gradient.
void add_to_leaf(Leaf& leaf, const Tensor& x);
/// The gradient that has arrived at a node, wherever it is kept.
const Tensor& received(const Node& n);

}  // namespace firn::autograd
