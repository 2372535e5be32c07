// Code that the kernels of operations of two operands share. binary.cu has most of them, and
// loss.cu has the elements of losses, so that two compilers share the work.
#pragma once

#include "kernels/cuda/elementwise/driver.cuh"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {

template <class Op>
struct BinaryForward {
  using WritesOnly = void;
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[2], C) const {
    return Op::f(x[0], x[1], args);
  }
};

template <class Op>
struct Comparison {
  using GivesBool = void;
  using WritesOnly = void;
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[2], C) const {
    return Op::f(x[0], x[1], args);
  }
};

/// Inputs are dy, a, b. `old` is neutral if beta is 0.
template <class Op, int kOperand>
struct BinaryGradient {
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[3], C old) const {
    if constexpr (kOperand == 0) {
      return old + Op::dfa(x[0], x[1], x[2], args);
    } else {
      return old + Op::dfb(x[0], x[1], x[2], args);
    }
  }
};

template <class Op>
void binary_forward(const char* op, const ConstView& a, const ConstView& b, const View& out,
                    math::Args args, Stream stream) {
  using Fn = std::conditional_t<Op::gives_bool, Comparison<Op>, BinaryForward<Op>>;
  if constexpr (Op::integers) {
    if (!is_floating(a.dtype)) {
      return elementwise<std::int64_t, 2>(op, {&a, &b}, out, false, stream, Fn{args});
    }
  }
  if constexpr (Op::floats) elementwise_floating<2>(op, {&a, &b}, out, false, stream, Fn{args});
}

template <class Op>
void binary_gradient(const char* op, int operand, const ConstView& dy, const ConstView& a,
                     const ConstView& b, const View& grad, math::Args args, float beta,
                     Stream stream) {
  if constexpr (math::kHasGradient<Op>) {
    const ConstView* const in[] = {&dy, &a, &b};
    if (operand == 0) {
      elementwise_floating<3>(op, in, grad, beta != 0, stream, BinaryGradient<Op, 0>{args});
    } else {
      elementwise_floating<3>(op, in, grad, beta != 0, stream, BinaryGradient<Op, 1>{args});
    }
  }
}

/// Do what binary() and binary_backward() do, for elements of losses.
void loss_elements(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& out,
                   math::Args args, Stream stream);
void loss_elements_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                            const ConstView& b, const View& grad, math::Args args, float beta,
                            Stream stream);

}  // namespace firn::kernels::cuda
