// Elementwise kernels of two and more operands on CUDA devices, from the formulas of math/binary.h.
#include "kernels/cuda/elementwise/driver.cuh"
#include "kernels/elementwise.h"

namespace firn::kernels::cuda {
namespace {

using math::Args;

template <class Op>
struct Forward {
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[2], C) const {
    return Op::f(x[0], x[1], args);
  }
};

/// Inputs: dy, a, b. `old` is neutral if beta is 0.
template <class Op, int kOperand>
struct Gradient {
  Args args;
  template <class C>
  __device__ C operator()(const C (&x)[3], C old) const {
    if constexpr (kOperand == 0) {
      return old + Op::dfa(x[0], x[1], x[2], args);
    } else {
      return old + Op::dfb(x[0], x[1], x[2], args);
    }
  }
};

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

template <class Op>
void forward(const char* op, const ConstView& a, const ConstView& b, const View& out, Args args,
             Stream stream) {
  if constexpr (Op::integers) {
    if (!is_floating(a.dtype)) {
      return elementwise<std::int64_t, 2>(op, {&a, &b}, out, false, stream, Forward<Op>{args});
    }
  }
  elementwise_floating<2>(op, {&a, &b}, out, false, stream, Forward<Op>{args});
}

template <class Op>
void backward(const char* op, int operand, const ConstView& dy, const ConstView& a,
              const ConstView& b, const View& grad, Args args, float beta, Stream stream) {
  if constexpr (!Op::compares) {
    const ConstView* const in[] = {&dy, &a, &b};
    if (operand == 0) {
      elementwise_floating<3>(op, in, grad, beta != 0, stream, Gradient<Op, 0>{args});
    } else {
      elementwise_floating<3>(op, in, grad, beta != 0, stream, Gradient<Op, 1>{args});
    }
  }
}

}  // namespace

void binary(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& out, Args args,
            Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)  \
  case math::BinaryOp::function: \
    return forward<math::Op>(name, a, b, out, args, stream);
    FIRN_EACH_BINARY(FIRN_CASE)
#undef FIRN_CASE
  }
}

void binary_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                     const ConstView& b, const View& grad, Args args, float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)  \
  case math::BinaryOp::function: \
    return backward<math::Op>(name, operand, dy, a, b, grad, args, beta, stream);
    FIRN_EACH_BINARY(FIRN_CASE)
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
