// Elementwise kernels of one operand on CUDA devices, from the formulas of math/unary.h.
#include "kernels/cuda/elementwise/driver.cuh"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {
namespace {

using math::Args;

template <class Op>
struct Forward {
  using In16Bits = Coarse;
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[1], C) const {
    return Op::f(x[0], args);
  }
};

/// Inputs: dy, saved. `old` is neutral if beta is 0.
template <class Op>
struct Gradient {
  using In16Bits = Coarse;
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[2], C old) const {
    return old + Op::df(x[0], x[1], args);
  }
};

template <class Op>
void forward(const char* op, const ConstView& x, const View& y, Args args, Stream stream) {
  if constexpr (Op::integers) {
    if (!is_floating(x.dtype)) {
      return elementwise<std::int64_t, 1>(op, {&x}, y, false, stream, Forward<Op>{args});
    }
  }
  elementwise_floating<1>(op, {&x}, y, false, stream, Forward<Op>{args});
}

}  // namespace

void unary(math::UnaryOp op, const ConstView& x, const View& y, Args args, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...) \
  case math::UnaryOp::function:      \
    return forward<math::Op>(name, x, y, args, stream);
    FIRN_EACH_UNARY(FIRN_CASE)
#undef FIRN_CASE
  }
}

void unary_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved, const View& dx,
                    Args args, float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...)                                           \
  case math::UnaryOp::function:                                                \
    return elementwise_floating<2>(name, {&dy, &saved}, dx, beta != 0, stream, \
                                   Gradient<math::Op>{args});
    FIRN_EACH_UNARY(FIRN_CASE)
#undef FIRN_CASE
  }
}

}  // namespace firn::kernels::cuda
