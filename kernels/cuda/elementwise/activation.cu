// Activations on CUDA devices, from the formulas of math/activation.h.
#include "kernels/cuda/elementwise/unary.cuh"

namespace firn::kernels::cuda {

using math::Args;

void activation(math::UnaryOp op, const ConstView& x, const View& y, Args args, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...) \
  case math::UnaryOp::function:      \
    return unary_forward<math::Op>(name, x, y, args, stream);
    FIRN_EACH_ACTIVATION(FIRN_CASE)
#undef FIRN_CASE
    default:
      return;  // unary.cu has the others
  }
}

void activation_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved,
                         const View& dx, Args args, float beta, Stream stream) {
  const char* name = math::info(op).name;
  switch (op) {
#define FIRN_CASE(function, Op, ...) \
  case math::UnaryOp::function:      \
    return unary_gradient<math::Op>(name, dy, saved, dx, args, beta, stream);
    FIRN_EACH_ACTIVATION(FIRN_CASE)
#undef FIRN_CASE
    default:
      return;  // unary.cu has the others
  }
}

}  // namespace firn::kernels::cuda
