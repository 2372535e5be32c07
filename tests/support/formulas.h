// The elementwise formulas of kernels/math as functions of doubles, by the op's number, for tests
// of the kernels that run them.
#pragma once

#include <array>

#include "kernels/math/binary.h"
#include "kernels/math/unary.h"

namespace firn::testing {

/// Parameters for an op that has some.
inline math::Args args_of(math::UnaryOp op) {
  switch (op) {
    case math::UnaryOp::leaky_relu:
      return {0.125, 0};
    case math::UnaryOp::elu:
      return {0.75, 0};
    case math::UnaryOp::celu:
      return {1.25, 0};
    case math::UnaryOp::clamp:
    case math::UnaryOp::hardtanh:
      return {-1.5, 2.25};
    case math::UnaryOp::threshold:
      return {0.5, -2};
    case math::UnaryOp::nan_to_num:
      return {0.25, 3, -5};
    case math::UnaryOp::pow_number:
      return {1.5, 0};
    default:
      return {3.5, 0};
  }
}

namespace detail {

// Templates: only in one is a member that an op lacks left out.
template <class Op, class... X>
double value_of(math::Args p, X... x) {
  if constexpr (Op::floats) return Op::f(x..., p);
  return 0;
}
template <class Op>
double slope_of(double saved, math::Args p) {
  if constexpr (math::kHasGradient<Op> && !Op::flat) return Op::df(1.0, saved, p);
  return 0;
}
template <class Op>
double slope_of(int operand, std::array<double, 2> x, math::Args p) {
  if constexpr (math::kHasGradient<Op>)
    return operand == 0 ? Op::dfa(1.0, x[0], x[1], p) : Op::dfb(1.0, x[0], x[1], p);
  return 0;
}

}  // namespace detail

/// f(x), or 0 for an op that takes no floats.
inline double formula(math::UnaryOp op, double x, math::Args p) {
  switch (op) {
#define FIRN_CASE(name, Op, ...) \
  case math::UnaryOp::name:      \
    return detail::value_of<math::Op>(p, x);
    FIRN_EACH_UNARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return 0;
}
/// f'(saved), or 0 for an op without a gradient.
inline double slope(math::UnaryOp op, double saved, math::Args p) {
  switch (op) {
#define FIRN_CASE(name, Op, ...) \
  case math::UnaryOp::name:      \
    return detail::slope_of<math::Op>(saved, p);
    FIRN_EACH_UNARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return 0;
}

/// The same of two operands.
inline double formula(math::BinaryOp op, std::array<double, 2> x, math::Args p) {
  switch (op) {
#define FIRN_CASE(name, Op)  \
  case math::BinaryOp::name: \
    return detail::value_of<math::Op>(p, x[0], x[1]);
    FIRN_EACH_BINARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return 0;
}
/// The derivative by x[operand].
inline double slope(math::BinaryOp op, int operand, std::array<double, 2> x, math::Args p) {
  switch (op) {
#define FIRN_CASE(name, Op)  \
  case math::BinaryOp::name: \
    return detail::slope_of<math::Op>(operand, x, p);
    FIRN_EACH_BINARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return 0;
}

}  // namespace firn::testing
