// Elementwise kernels of three operands (row functions made from the formulas of math/ternary.h),
// choice by a condition, and the sum of two scaled tensors.
#include "kernels/cpu/elementwise/driver.h"
#include "kernels/elementwise.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Args;

template <class Op, class C>
void forward_row(const C* const* in, const C*, C* out, std::int64_t n, const Args& args) {
  map_row(
      n, out, [p = args](auto a, auto b, auto c) { return Op::f(a, b, c, p); }, in[0], in[1],
      in[2]);
}

/// `in` is dy, a, b, c.
template <class Op, int kOperand, class C>
void backward_row(const C* const* in, const C* old, C* out, std::int64_t n, const Args& args) {
  const auto gradient = [p = args](auto dy, auto a, auto b, auto c) {
    return Op::template df<kOperand>(dy, a, b, c, p);
  };
  if (old) {
    map_row(
        n, out, [&](auto dy, auto a, auto b, auto c, auto o) { return o + gradient(dy, a, b, c); },
        in[0], in[1], in[2], in[3], old);
  } else {
    map_row(n, out, gradient, in[0], in[1], in[2], in[3]);
  }
}

template <class Op>
constexpr Rows forward_rows() {
  return rows_of<Op>([]<class C>(C) { return RowFn<C>(&forward_row<Op, C>); });
}
template <class Op, int kOperand>
constexpr Rows backward_rows() {
  return {&backward_row<Op, kOperand, float>, &backward_row<Op, kOperand, double>, nullptr};
}

// clang-format off
constexpr Rows kForward[] = {
#define FIRN_ROWS(name, Op) forward_rows<math::Op>(),
    FIRN_TERNARY_OPS(FIRN_ROWS)
#undef FIRN_ROWS
};
constexpr Rows kBackward[][3] = {
#define FIRN_ROWS(name, Op) \
  {backward_rows<math::Op, 0>(), backward_rows<math::Op, 1>(), backward_rows<math::Op, 2>()},
    FIRN_TERNARY_OPS(FIRN_ROWS)
#undef FIRN_ROWS
};
// clang-format on

/// `in` is condition, a, b.
template <class C>
void where_row(const C* const* in, const C* old, C* out, std::int64_t n, const Args&) {
  using math::where;
  const auto choose = [](auto c, auto a, auto b) { return where(c != decltype(c)(0), a, b); };
  if (old) {
    map_row(
        n, out, [&](auto c, auto a, auto b, auto o) { return o + choose(c, a, b); }, in[0], in[1],
        in[2], old);
  } else {
    map_row(n, out, choose, in[0], in[1], in[2]);
  }
}

/// `args` are alpha, beta.
template <class C>
void axpby_row(const C* const* in, const C* old, C* out, std::int64_t n, const Args& args) {
  if (old) {
    map_row(
        n, out, [p = args](auto x, auto o) { return decltype(x)(p.a) * x + decltype(x)(p.b) * o; },
        in[0], old);
  } else {
    map_row(
        n, out, [p = args](auto x) { return decltype(x)(p.a) * x; }, in[0]);
  }
}

}  // namespace

void ternary(math::TernaryOp op, const ConstView& a, const ConstView& b, const ConstView& c,
             const View& out, math::Args args, Stream) {
  elementwise<3>(kForward[static_cast<int>(op)], {&a, &b, &c}, out, false, args, 1);
}

void ternary_backward(math::TernaryOp op, int operand, const ConstView& dy, const ConstView& a,
                      const ConstView& b, const ConstView& c, const View& grad, math::Args args,
                      float beta, Stream) {
  elementwise<4>(kBackward[static_cast<int>(op)][operand], {&dy, &a, &b, &c}, grad, beta != 0, args,
                 2);
}

void where(const ConstView& condition, const ConstView& a, const ConstView& b, const View& out,
           float beta, Stream) {
  constexpr Rows kRows{&where_row<float>, &where_row<double>, &where_row<std::int64_t>};
  // The values decide the compute type, in which the condition is read as 0 or 1.
  const ConstView* const in[] = {&condition, &a, &b};
  switch (compute_dtype(a.dtype)) {
    case DType::f32:
      return elementwise<float, 3>(kRows.f, in, out, beta != 0, {}, 1);
    case DType::f64:
      return elementwise<double, 3>(kRows.d, in, out, beta != 0, {}, 1);
    default:
      return elementwise<std::int64_t, 3>(kRows.i, in, out, beta != 0, {}, 1);
  }
}

void axpby(double alpha, const ConstView& x, double beta, const View& y, Stream) {
  constexpr Rows kRows{&axpby_row<float>, &axpby_row<double>, &axpby_row<std::int64_t>};
  elementwise<1>(kRows, {&x}, y, beta != 0, {alpha, beta}, 1);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
