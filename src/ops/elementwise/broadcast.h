// Shape of the result, numbers as operands, and gradients of operands that were repeated, for
// elementwise operations of several operands.
#pragma once

#include "kernels/math/binary.h"
#include "ops/common.h"

namespace firn::ops {

inline Shape result_shape(const char* name, const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() ? a.shape() : broadcast_shapes(name, a.shape(), b.shape());
}

/// A number as an operand, with the dtype of `like`.
inline Tensor operand_like(const char* name, const Tensor& like, double number) {
  require_defined(name, like);
  require_holds(name, like.dtype(), number);
  return full({}, number, like.dtype(), like.device());
}

/// Throws unless the op takes tensors of the dtype of x: bool if it gives bool or works on bits.
template <class Info>
void require_dtype(const Info& op, const char* name, const Tensor& x) {
  if (is_floating(x.dtype())) {
    FIRN_CHECK(op.floats, name, "cast it: x.to(firn::i64)", "takes integers and bool, not {}",
               describe(x));
    return;
  }
  if (!op.integers) require_floating(name, x);
  require_computed(name, x);
  FIRN_CHECK(x.dtype() != boolean || op.gives_bool || !op.floats, name, "cast it: x.to(firn::i32)",
             "does not take bool: {}", describe(x));
}

/// Computes the gradient of input i: `kernel(grad, beta)` writes beta*grad + contribution; the
/// contribution has the output's shape. If the input was broadcast, it goes to a temporary in the
/// compute dtype, which is summed over the repeated axes.
template <class Kernel>
void contribute(Backward& b, int i, Kernel&& kernel) {
  const Shape& shape = b.grad().shape();
  if (b.input_shape(i) == shape) {
    const auto [grad, beta] = b.sink(i);
    kernel(grad.mutable_view(), beta);
  } else {
    const Tensor full = empty(shape, compute_dtype(b.input_dtype(i)), b.grad().device(),
                              result_format(shape, b.grad()));
    kernel(full.mutable_view(), 0.f);
    accumulate_broadcast(b, i, full);
  }
}

/// Bit i of a set of operands (math::Operands).
constexpr bool holds(int operands, int i) { return (operands >> i & 1) != 0; }

/// Gradients of N inputs. saved(i) is input i if it is in `reads`; else its view is that of dy,
/// which the formula does not read. Inputs in `passes` get dy; `kernel(i, dy, views, grad, beta)`
/// computes the others.
template <int N, class Kernel>
void backward_of(Backward& b, int reads, int passes, Kernel&& kernel) {
  const ConstView dy = b.grad().view();
  std::array<ConstView, N> views;
  for (int i = 0; i < N; ++i)
    views[static_cast<std::size_t>(i)] =
        holds(reads, i) ? broadcast_to(b.saved(i).view(), dy.shape) : dy;
  for (int i = 0; i < N; ++i) {
    if (!b.needs(i)) continue;
    if (holds(passes, i)) {
      accumulate_broadcast(b, i, b.grad());
    } else {
      contribute(b, i, [&](const View& grad, float beta) { kernel(i, dy, views, grad, beta); });
    }
  }
}

/// `value` if operand i is in `reads`, to be saved.
inline Saved saved_if(int reads, int i, const Tensor& value) {
  return Saved::other(holds(reads, i) ? value : Tensor());
}

}  // namespace firn::ops
