// Recorded backward functions by composition: a fused operation is written once more in operations
// whose gradients are recorded.
#pragma once

#include <utility>
#include <vector>

#include "autograd/graph_backward.h"
#include "firn/grad.h"
#include "firn/ops/ops.h"

namespace firn::ops {

using autograd::GraphBackward;
using autograd::with_again;

/// Input `number` of the op, in the graph.
struct InGraph {
  int number;
  Tensor value;
};

/// Adds the gradients of compose(values), which computes the op's output from those inputs.
template <class Fn>
void add_composed(GraphBackward& b, const std::vector<InGraph>& inputs, Fn&& compose) {
  // Views of the inputs, which meet nowhere else: an input may be computed from another one.
  std::vector<Tensor> apart, wanted;
  std::vector<int> numbers;
  for (const InGraph& in : inputs) {
    apart.push_back(in.value.defined() ? reshape(in.value, in.value.shape()) : in.value);
    if (!b.needs(in.number)) continue;
    wanted.push_back(apart.back());
    numbers.push_back(in.number);
  }
  if (wanted.empty()) return;
  const Tensor y = compose(apart);
  const std::vector<Tensor> gradients = grad({y}, wanted,
                                             {.initial_gradients = {cast(b.grad(), y.dtype())},
                                              .create_graph = true,
                                              .allow_unused = true});
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (gradients[i].defined()) b.add(numbers[i], gradients[i]);
}

/// Returns transpose(dy): the gradient of an op that is linear in its operand, as an op of its own,
/// whose gradient is that op: linear(t). `transpose` runs kernels, `linear` operations.
template <class Transpose, class Linear>
Tensor transposed_map(const char* op, const Tensor& dy, Transpose&& transpose, Linear linear) {
  const Tensor dx = transpose(dy.detach());
  return autograd::record(
      op, dx, {&dy}, {},
      with_again([linear](autograd::Backward& b) { b.accumulate(0, linear(b.grad())); },
                 [linear](GraphBackward& b) { b.add(0, linear(b.grad())); }));
}

/// Returns the sum of each channel, axis 1: the gradient of a bias.
Tensor sum_of_channels(const Tensor& t);

/// Returns t summed over the axes that `shape` was repeated along, in recorded operations.
Tensor summed_to(const Tensor& t, const Shape& shape);

}  // namespace firn::ops
