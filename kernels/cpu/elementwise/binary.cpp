// Elementwise kernels of two operands: row functions made from the formulas of math/binary.h.
#include "kernels/cpu/elementwise/driver.h"
#include "kernels/elementwise.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Args;

template <class Op, class C>
void forward_row(const C* const* in, const C*, C* out, std::int64_t n, const Args& args) {
  map_row(
      n, out, [a = args](auto x, auto y) { return Op::f(x, y, a); }, in[0], in[1]);
}

/// `in` is dy, a, b.
template <class Op, int kOperand, class C>
void backward_row(const C* const* in, const C* old, C* out, std::int64_t n, const Args& args) {
  const auto gradient = [p = args](auto dy, auto a, auto b) {
    if constexpr (kOperand == 0) {
      return Op::dfa(dy, a, b, p);
    } else {
      return Op::dfb(dy, a, b, p);
    }
  };
  if (old) {
    map_row(
        n, out, [&](auto dy, auto a, auto b, auto o) { return o + gradient(dy, a, b); }, in[0],
        in[1], in[2], old);
  } else {
    map_row(n, out, gradient, in[0], in[1], in[2]);
  }
}

template <class Op>
constexpr Rows forward_rows() {
  return rows_of<Op>([]<class C>(C) { return RowFn<C>(&forward_row<Op, C>); });
}
template <class Op, int kOperand>
constexpr Rows backward_rows() {
  if constexpr (math::kHasGradient<Op>) {
    return {&backward_row<Op, kOperand, float>, &backward_row<Op, kOperand, double>, nullptr};
  } else {
    return {};
  }
}

// clang-format off
constexpr Rows kForward[] = {
#define FIRN_ROWS(name, Op) forward_rows<math::Op>(),
    FIRN_EACH_BINARY(FIRN_ROWS)
#undef FIRN_ROWS
};
constexpr Rows kBackward[][2] = {
#define FIRN_ROWS(name, Op) {backward_rows<math::Op, 0>(), backward_rows<math::Op, 1>()},
    FIRN_EACH_BINARY(FIRN_ROWS)
#undef FIRN_ROWS
};
// clang-format on

}  // namespace

void binary(math::BinaryOp op, const ConstView& a, const ConstView& b, const View& out,
            math::Args args, Stream) {
  elementwise<2>(kForward[static_cast<int>(op)], {&a, &b}, out, false, args, 1);
}

void binary_backward(math::BinaryOp op, int operand, const ConstView& dy, const ConstView& a,
                     const ConstView& b, const View& grad, math::Args args, float beta, Stream) {
  elementwise<3>(kBackward[static_cast<int>(op)][operand], {&dy, &a, &b}, grad, beta != 0, args, 2);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
