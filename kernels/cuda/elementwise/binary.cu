// Elementwise kernels of two operands on CUDA devices, from the formulas of math/binary.h.
#include "kernels/cuda/elementwise/binary.cuh"

namespace firn::kernels::cuda {

using math::Args;

void binary(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& out, Args args,
            Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)  \
  case math::BinaryOp::function: \
    return binary_forward<math::Op>(name, a, b, out, args, stream);
    FIRN_EACH_TENSOR_OP(FIRN_CASE)
#undef FIRN_CASE
    default:
      return loss_elements(op, a, b, out, args, stream);
  }
}

void binary_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                     const ConstView& b, const View& grad, Args args, float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op)  \
  case math::BinaryOp::function: \
    return binary_gradient<math::Op>(name, operand, dy, a, b, grad, args, beta, stream);
    FIRN_EACH_TENSOR_OP(FIRN_CASE)
#undef FIRN_CASE
    default:
      return loss_elements_backward(op, operand, dy, a, b, grad, args, beta, stream);
  }
}

}  // namespace firn::kernels::cuda
