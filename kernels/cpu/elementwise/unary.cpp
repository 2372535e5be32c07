// Elementwise kernels of one operand: row functions made from the formulas of math/unary.h.
#include "kernels/cpu/elementwise/driver.h"
#include "kernels/elementwise.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Args;

template <class Op, class C>
void forward_row(const C* const* in, const C*, C* out, std::int64_t n, const Args& args) {
  map_row(
      n, out, [a = args](auto x) { return Op::f(x, a); }, in[0]);
}

template <class Op, class C>
void backward_row(const C* const* in, const C* old, C* out, std::int64_t n, const Args& args) {
  if (old) {
    map_row(
        n, out, [a = args](auto dy, auto s, auto o) { return o + Op::df(dy, s, a); }, in[0], in[1],
        old);
  } else {
    map_row(
        n, out, [a = args](auto dy, auto s) { return Op::df(dy, s, a); }, in[0], in[1]);
  }
}

template <class Op>
constexpr Rows forward_rows() {
  return rows_of<Op>([]<class C>(C) { return RowFn<C>(&forward_row<Op, C>); });
}
template <class Op>
constexpr Rows backward_rows() {
  if constexpr (math::kHasGradient<Op> && !Op::flat) {
    return {&backward_row<Op, float>, &backward_row<Op, double>, nullptr};
  } else {
    return {};
  }
}

// clang-format off
constexpr Rows kForward[] = {
#define FIRN_ROWS(name, Op, ...) forward_rows<math::Op>(),
    FIRN_EACH_UNARY(FIRN_ROWS)
#undef FIRN_ROWS
};
constexpr Rows kBackward[] = {
#define FIRN_ROWS(name, Op, ...) backward_rows<math::Op>(),
    FIRN_EACH_UNARY(FIRN_ROWS)
#undef FIRN_ROWS
};
// clang-format on

}  // namespace

void unary(math::UnaryOp op, const ConstView& x, const View& y, math::Args args, Stream) {
  elementwise<1>(kForward[static_cast<int>(op)], {&x}, y, false, args, 2);
}

void unary_backward(math::UnaryOp op, const ConstView& dy, const ConstView& saved, const View& dx,
                    math::Args args, float beta, Stream) {
  elementwise<2>(kBackward[static_cast<int>(op)], {&dy, &saved}, dx, beta != 0, args, 2);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
