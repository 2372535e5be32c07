// Contract of matrix multiplication.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

struct GemmArgs {
  double alpha = 1;
  double beta = 0;      ///< with 0, c is not read
  ConstView bias = {};  ///< [n] added to every row, any floating dtype; data == nullptr: none
};

namespace cpu {

/// c = alpha * a b + beta * c + bias, for [m, k] x [k, n], or [batch, m, k] x [batch, k, n] with
/// batch strides of any size, 0 included. a and b share a floating dtype; c has it too, or f32
/// where they are 16-bit. Products are summed in f32 (f64 for f64). Any strides: an operand without
/// a unit stride is copied to workspace first. k = 0 gives beta*c + bias.
/// On the CPU the split over threads depends on the shape alone: the same bits for any number of
/// threads. On CUDA devices the order of a sum belongs to the shape, the dtypes and the layout, and
/// a bias of another dtype than c's is rounded to it first.
void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
          Stream stream);

}  // namespace cpu

FIRN_KERNEL(gemm)

}  // namespace firn::kernels
