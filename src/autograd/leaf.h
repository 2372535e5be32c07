// The memory in which a gradient is collected: the buffer of an inner node, a leaf's own memory, or
// the arena that an optimizer has given the leaf.
#pragma once

#include "autograd/node.h"

namespace firn::autograd {

/// target = x + beta * target.
void add_into(const Tensor& target, const Tensor& x, float beta);
/// Allocates memory for the gradient of a node's output.
Tensor buffer_for(const Node& n);
/// Makes the node's `buffer` safe to write: it gets the node's memory format and no other owner.
Sink exclusive(Tensor& buffer, const Node& n);

/// Asks the leaf's collector, if it has one, for memory if the leaf has none.
void borrow_arena(Leaf& leaf);
/// Returns the destination of the next contribution to the leaf's gradient, and whether to add or
/// store.
Sink leaf_sink(Leaf& leaf);
bool has_gradient(const Leaf& leaf) noexcept;
/// Resets a leaf without a gradient to that state, after writing its first contribution has thrown.
void take_back(Leaf& leaf) noexcept;
/// Adds x to the leaf's gradient.
void add_to_leaf(Leaf& leaf, const Tensor& x);
/// The gradient that has arrived at a node, in whichever memory it is.
const Tensor& received(const Node& n);

}  // namespace firn::autograd
