// The tensor operations that rules of whole parameters need, made of kernel contracts. Results are
// new tensors, or `out`. Operands of size 1 along an axis are broadcast, as in the operations of
// the same names.
#pragma once

#include "firn/tensor.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace firn::optim::algebra {

using math::BinaryOp;
using math::UnaryOp;

/// out = f(a, b). `out` may be an operand that has the shape of the result.
void binary(BinaryOp f, const Tensor& a, const Tensor& b, const Tensor& out);
Tensor binary(BinaryOp f, const Tensor& a, const Tensor& b);
/// x = f(x).
void unary(UnaryOp f, const Tensor& x);
/// y = alpha x + beta y.
void axpby(double alpha, const Tensor& x, double beta, const Tensor& y);
/// to = from.
void copy(const Tensor& from, const Tensor& to);
/// Returns a tensor with one element, in the dtype and on the device of `like`.
Tensor number(double value, const Tensor& like);
/// Returns scale times the sum of x over the axes along which `shape` has size 1.
Tensor sum(const Tensor& x, const Shape& shape, double scale);
Tensor sum_of_squares(const Tensor& x, const Shape& shape, double scale);
/// Returns the elements of a dense tensor in memory order, as [n] or as a matrix.
Tensor line(const Tensor& x);
Tensor matrix(const Tensor& x, std::int64_t rows, std::int64_t cols);
/// out = alpha a b + beta out, for matrices.
void product(const Tensor& a, const Tensor& b, double alpha, double beta, const Tensor& out);
Tensor transposed(const Tensor& matrix);

}  // namespace firn::optim::algebra
