// Elementwise kernels of one operand on CUDA devices, from the formulas of math/unary.h.
#include "kernels/cuda/elementwise/unary.cuh"

namespace firn::kernels::cuda {

using math::Args;

void unary(math::UnaryOp op, const ConstView& x, const View& y, Args args, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...) \
  case math::UnaryOp::function:      \
    return unary_forward<math::Op>(name, x, y, args, stream);
    FIRN_EACH_FUNCTION(FIRN_CASE)
#undef FIRN_CASE
    default:
      return activation(op, x, y, args, stream);
  }
}

void unary_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved, const View& dx,
                    Args args, float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...) \
  case math::UnaryOp::function:      \
    return unary_gradient<math::Op>(name, dy, saved, dx, args, beta, stream);
    FIRN_EACH_FUNCTION(FIRN_CASE)
#undef FIRN_CASE
    default:
      return activation_backward(op, dy, saved, dx, args, beta, stream);
  }
}

}  // namespace firn::kernels::cuda
