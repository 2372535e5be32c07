// Code that the kernels of operations of one operand share. unary.cu has functions, and
// activation.cu has activations, so that two compilers share the work.
#pragma once

#include "kernels/cuda/elementwise/driver.cuh"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {

template <class Op>
struct UnaryForward {
  using In16Bits = Coarse;
  using WritesOnly = void;
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[1], C) const {
    return Op::f(x[0], args);
  }
};

template <class Op>
struct Question {
  using GivesBool = void;
  using WritesOnly = void;
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[1], C) const {
    return Op::f(x[0], args);
  }
};

/// Inputs are dy, saved. `old` is neutral if beta is 0.
template <class Op>
struct UnaryGradient {
  using In16Bits = Coarse;
  math::Args args;
  template <class C>
  __device__ C operator()(const C (&x)[2], C old) const {
    return old + Op::df(x[0], x[1], args);
  }
};

template <class Op>
void unary_forward(const char* op, const ConstView& x, const View& y, math::Args args,
                   Stream stream) {
  using Fn = std::conditional_t<Op::gives_bool, Question<Op>, UnaryForward<Op>>;
  if constexpr (Op::integers) {
    if (!is_floating(x.dtype)) {
      return elementwise<std::int64_t, 1>(op, {&x}, y, false, stream, Fn{args});
    }
  }
  if constexpr (Op::floats) elementwise_floating<1>(op, {&x}, y, false, stream, Fn{args});
}

template <class Op>
void unary_gradient(const char* op, const ConstView& dy, const ConstView& saved, const View& dx,
                    math::Args args, float beta, Stream stream) {
  if constexpr (math::kHasGradient<Op> && !Op::flat) {
    elementwise_floating<2>(op, {&dy, &saved}, dx, beta != 0, stream, UnaryGradient<Op>{args});
  }
}

/// Do what unary() and unary_backward() do, for activations.
void activation(math::UnaryOp op, const ConstView& x, const View& y, math::Args args,
                Stream stream);
void activation_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved,
                         const View& dx, math::Args args, float beta, Stream stream);

}  // namespace firn::kernels::cuda
