// The rungs of the ladder, each a check on one row of the op table. Every one runs on the default
// device; what it is measured by is always computed in f64 on the CPU.
//
// Bounds. u is the unit roundoff of the dtype (2^-11 f16, 2^-8 bf16, 2^-24 f32), c = 2^-24 that of
// the f32 in which all three are computed, y the f64 result on the same (rounded) operands, r the
// row's `roundings`, K its `terms`. f16 adds half its smallest subnormal, 2^-25.
//
//   forward    exact       0
//              rounded     u |y|
//              pointwise   r u |y| + 8 c |y|
//              normwise    r u max|y| + 8 c max|y|
//              sum         u |y| + (r-1) u M + (4 sqrt K + 2) c M, where M is the sum of the terms'
//                          magnitudes: the op itself on |operands|
//   backward   all         4 r u M + (4 sqrt N + 8) c M, where N = numel(y) bounds the length of
//                          the sums, and M is max|gradient|, or for `sum` the gradient at
//                          |operands| and |seed|. The 4 u: operands and results are saved in the
//                          dtype, and a derivative uses them up to three times before it is rounded
//                          itself.
//              exact       4 u M, without the second part where nothing is summed
//
// A row with `cancels(scale, slope)` says how large the numbers inside the op are: max|y| is then
// at least `scale` and max|gradient| at least `slope` max|seed|. 1 - tanh^2, for one, is the
// difference of two numbers near 1, so its error is an ulp of 1 and not of itself.
//
// Central differences (f64, h = 2^-17 max(1, |x|)): |analytic - numeric| <= 1e-7 S + 1e-9 + 1.2e-10
// sum |v y|, with S the sum of magnitudes of the analytic terms. The last part is the rounding of
// the difference quotient, 8 * 2^-53 / 2^-17 a value.
#pragma once

#include <span>

#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {

/// Rung 1, and with it: each operand alone, operands together, the same tensor as both operands,
/// gradients that accumulate over two passes, empty shapes.
void check_gradient(const OpRow& row);
/// The same for gradients of gradients; refused by name if the row is first_derivative_only.
void check_second_derivative(const OpRow& row);
/// Rungs 2 and 3.
void check_against_double(const OpRow& row, DType dtype, std::span<const Layout> layouts);
/// 16-bit results are those of f32 on the same operands, rounded once: within
///   u |y| + (r-1) u M + twice the bound of f32,
/// where y is the result in f32, and M max|y|, or for `sum` the sum of the terms' magnitudes.
void check_rounded_once(const OpRow& row, DType dtype);
/// Rung 4.
void check_golden(const OpRow& row);
void check_integers(const OpRow& row);
void check_in_place(const OpRow& row);

/// The operands' values for shape set `which` of a row, in row-major order, the same every time.
std::vector<std::vector<double>> operand_values(const OpRow& row, std::size_t which);

/// The dtype of an operand if real numbers are in `real_dtype`.
DType dtype_for(const Arg& arg, DType real_dtype);
/// The simulator takes seconds for what a GPU does in microseconds: there large shapes are computed
/// in f32 and row-major only, and not at all where every access is checked.
bool too_slow(const std::vector<Shape>& shapes, DType dtype, Layout layout);

}  // namespace firn::testing
