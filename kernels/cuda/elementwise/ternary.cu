// Elementwise kernels of three operands on CUDA devices (from the formulas of math/ternary.h),
// choice by a condition, and the sum of two scaled tensors.
#include "kernels/cuda/elementwise/driver.cuh"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {
namespace {

using math::Args;

template <class Op>
struct Forward {
  using WritesOnly = void;
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[3], C) const {
    return Op::f(x[0], x[1], x[2], args);
  }
};

/// Inputs are dy, a, b, c. `old` is neutral if beta is 0.
template <class Op, int kOperand>
struct Gradient {
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[4], C old) const {
    return old + Op::template df<kOperand>(x[0], x[1], x[2], x[3], args);
  }
};

template <class Op>
void forward(const char* op, const ConstView* const (&in)[3], const View& out, Args args,
             Stream stream) {
  if constexpr (Op::integers) {
    if (!is_floating(in[0]->dtype)) {
      return elementwise<std::int64_t, 3>(op, in, out, false, stream, Forward<Op>{args});
    }
  }
  elementwise_floating<3>(op, in, out, false, stream, Forward<Op>{args});
}

template <class Op>
void backward(const char* op, int operand, const ConstView* const (&in)[4], const View& grad,
              Args args, float beta, Stream stream) {
  if (operand == 0) {
    elementwise_floating<4>(op, in, grad, beta != 0, stream, Gradient<Op, 0>{args});
  } else if (operand == 1) {
    elementwise_floating<4>(op, in, grad, beta != 0, stream, Gradient<Op, 1>{args});
  } else {
    elementwise_floating<4>(op, in, grad, beta != 0, stream, Gradient<Op, 2>{args});
  }
}

struct Where {
  template <class C>
  __device__ C operator()(const C (&x)[3], C old) const {
    return old + (x[0] != C(0) ? x[1] : x[2]);
  }
};

struct Axpby {
  double alpha, beta;
  template <class C>
  __device__ C operator()(const C (&x)[1], C old) const {
    return C(alpha) * x[0] + C(beta) * old;
  }
};

}  // namespace

void ternary(math::TernaryOp op, const ConstView& a, const ConstView& b, const ConstView& c,
             const View& out, Args args, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)   \
  case math::TernaryOp::function: \
    return forward<math::Op>(name, {&a, &b, &c}, out, args, stream);
    FIRN_TERNARY_OPS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void ternary_backward(math::TernaryOp op, int operand, const ConstView& dy, const ConstView& a,
                      const ConstView& b, const ConstView& c, const View& grad, Args args,
                      float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)   \
  case math::TernaryOp::function: \
    return backward<math::Op>(name, operand, {&dy, &a, &b, &c}, grad, args, beta, stream);
    FIRN_TERNARY_OPS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void where(const ConstView& condition, const ConstView& a, const ConstView& b, const View& out,
           float beta, Stream stream) {
  const ConstView* const in[] = {&condition, &a, &b};
  if (is_floating(a.dtype)) {
    elementwise_floating<3>("where", in, out, beta != 0, stream, Where{});
  } else {
    elementwise<std::int64_t, 3>("where", in, out, beta != 0, stream, Where{});
  }
}

void axpby(double alpha, const ConstView& x, double beta, const View& y, Stream stream) {
  const ConstView* const in[] = {&x};
  if (is_floating(x.dtype)) {
    elementwise_floating<1>("axpby", in, y, beta != 0, stream, Axpby{alpha, beta});
  } else {
    elementwise<std::int64_t, 1>("axpby", in, y, beta != 0, stream, Axpby{alpha, beta});
  }
}

}  // namespace firn::kernels::cuda
