// Contract of the three products of a dense layer y = activation(x w^T + bias). Bias, activation
// and its derivative can be epilogues of the products. Separate kernels give the same result to
// rounding; a backend picks what is faster.
//
// x is [m, k], w [n, k], y and dy [m, n], all of one floating dtype. Inputs may have any strides;
// y, dx, dw and db are row-major.
#pragma once

#include "firn/ops/activation.h"
#include "kernels/dispatch.h"

namespace firn::kernels {

using firn::Activation;

/// Format of the tensor that dense_forward saves for the data gradient of the layer above.
struct DenseSaved {
  DType dtype;
  Shape shape;
};
/// relu saves one bit an element, set if the gradient passes: if y is above 0 or NaN. y counts as
/// it is stored, so a sum that rounds to 0 passes none, as in relu(linear(x)). Element j of a row
/// is bit j % 8 of byte j / 8; rows are padded to 128 bits with zeros. gelu_tanh saves the value
/// before it, in the dtype of y, with rows padded to multiples of 8. none saves an empty shape [0].
DenseSaved dense_saved(Activation activation, std::int64_t m, std::int64_t n, DType dtype);

namespace cpu {

/// y = activation(x w^T + bias). bias [n] has any floating dtype, or data == nullptr. `saved` is as
/// dense_saved says, or has data == nullptr if no gradient will be asked for. A NaN stays a NaN,
/// and passes the gradient on. On CUDA devices the library takes the hardware's tanh. So gelu_tanh
/// of 16-bit values, and of f32 with TF32 allowed, may be off by 5e-4 |x|.
void dense_forward(const ConstView& x, const ConstView& w, const ConstView& bias,
                   Activation activation, const View& y, const View& saved, Stream stream);

/// dx = (dy w) * activation'(saved), where `activation` and `saved` are of the layer that made x:
/// with `none`, dx = dy w. So dx is the gradient before that layer's activation.
void dense_data_gradient(const ConstView& dy, const ConstView& w, Activation activation,
                         const ConstView& saved, const View& dx, Stream stream);

/// dw = dw_beta*dw + dy^T x, and db = db_beta*db + the sum of dy's rows; each beta is 0 or 1. dw
/// [n, k] and db [n] are f32 or of the operands' dtype; db may have data == nullptr.
void dense_weight_gradient(const ConstView& dy, const ConstView& x, const View& dw, float dw_beta,
                           const View& db, float db_beta, Stream stream);

}  // namespace cpu

inline double dense_forward_flops(const ConstView& x, const ConstView& w, const auto&...) {
  return 2.0 * double(x.numel()) * double(w.shape[0]);
}
inline double dense_data_gradient_flops(const ConstView& dy, const ConstView& w, const auto&...) {
  return 2.0 * double(dy.numel()) * double(w.shape[1]);
}
inline double dense_weight_gradient_flops(const ConstView& dy, const ConstView& x, const auto&...) {
  return 2.0 * double(dy.numel()) * double(x.shape[1]);
}
FIRN_KERNEL_OF_PRODUCTS(dense_forward, dense_forward_flops)
FIRN_KERNEL_OF_PRODUCTS(dense_data_gradient, dense_data_gradient_flops)
FIRN_KERNEL_OF_PRODUCTS(dense_weight_gradient, dense_weight_gradient_flops)

}  // namespace firn::kernels
