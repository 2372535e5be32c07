// Elementwise ops of one operand, and of a tensor and a number. Their formulas, gradients and
// properties are in kernels/math/unary.h; the end of this file generates the functions of its list.
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/in_place.h"

namespace firn {
namespace {

using namespace ops;
using math::Args;
using math::Saves;
using math::UnaryOp;

void check_dtype(UnaryOp op, const char* name, const Tensor& x) {
  require_defined(name, x);
  if (is_floating(x.dtype())) return;
  if (!math::info(op).integers) require_floating(name, x);
  FIRN_CHECK(x.dtype() != boolean, name, "cast it: x.to(firn::i32)", "does not take bool: {}",
             describe(x));
}

/// Records y = op(x); `input` is x, or a copy of it if y overwrote x.
Tensor record_unary(UnaryOp op, const char* name, const Tensor& x, const Tensor& input, Tensor y,
                    Args args) {
  const auto backward = [op, args](Backward& b) {
    if (op == UnaryOp::add_number) return b.accumulate(0, b.grad());
    const Tensor& saved = math::info(op).saves == Saves::none ? b.grad() : b.saved(0);
    const auto [dx, beta] = b.sink(0);
    kernels::unary_backward(op, b.grad().view(), saved.view(), dx.mutable_view(), args, beta,
                            b.stream());
  };
  switch (math::info(op).saves) {
    case Saves::none:
      return record(name, std::move(y), {&x}, {}, backward);
    case Saves::input:
      return record(name, std::move(y), {&x}, {Saved::other(input)}, backward);
    default:
      return record(name, std::move(y), {&x}, {Saved::output()}, backward);
  }
}

/// x is given too, since an in-place form has overwritten it when it is recorded.
void give_attributes(UnaryOp op, const char* name, const Tensor& x, Args args) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(
        name, {{"formula", math::info(op).name}, {"a", args.a}, {"b", args.b}, {"operand", &x}});
}

Tensor unary(UnaryOp op, const char* name, const Tensor& operand, Args args) {
  const Autocasted in(math::info(op).autocast, operand);
  const Tensor& x = in[0];
  check_dtype(op, name, x);
  Tensor y = empty_like(x);
  kernels::unary(op, x.view(), y.mutable_view(), args, stream_of(x));
  give_attributes(op, name, x, args);
  return record_unary(op, name, x, x, std::move(y), args);
}

/// The in-place form keeps x's dtype under autocast.
Tensor& unary_in_place(UnaryOp op, const char* name, Tensor& x, Args args) {
  check_dtype(op, name, x);
  const bool recorded = autograd::detail::needs_recording({&x});
  autograd::check_in_place(name, x, recorded);
  Tensor input;
  if (recorded && math::info(op).saves == Saves::input) input = values_now(x);
  give_attributes(op, name, x, args);
  kernels::unary(op, x.view(), x.mutable_view(), args, stream_of(x));
  x.storage()->bump_version(name);
  if (recorded) {
    x = record_unary(op, name, x, input, x.detach(), args);
  } else {
    autograd::unrecorded(name, x, {&x});
  }
  return x;
}

/// A number takes the dtype of an integer tensor, which must hold it. Floating tensors compute with
/// it in the compute dtype.
void check_number(UnaryOp op, const char* name, const Tensor& x, double number) {
  check_dtype(op, name, x);
  if (!is_floating(x.dtype())) require_holds(name, x.dtype(), number);
}

Tensor with_number(UnaryOp op, const char* name, const Tensor& x, double number) {
  check_number(op, name, x, number);
  return unary(op, name, x, {number, 0});
}
Tensor& with_number_in_place(UnaryOp op, const char* name, Tensor& x, double number) {
  check_number(op, name, x, number);
  return unary_in_place(op, name, x, {number, 0});
}
/// x - number, as an addition.
Tensor minus_number(const char* name, const Tensor& x, double number) {
  check_number(UnaryOp::add_number, name, x, number);
  return unary(UnaryOp::add_number, name, x, {-number, 0});
}
Tensor& minus_number_in_place(const char* name, Tensor& x, double number) {
  check_number(UnaryOp::add_number, name, x, number);
  return unary_in_place(UnaryOp::add_number, name, x, {-number, 0});
}

}  // namespace
}  // namespace firn

// The public functions. A qualified name defines only what ops.h has declared.
using firn::Tensor;
using firn::math::UnaryOp;

// clang-format off
#define FIRN_PLAIN(name, Op)                                                                       \
  Tensor firn::name(const Tensor& x) { return unary(UnaryOp::name, #name, x, {}); }                \
  Tensor& firn::name##_(Tensor& x) { return unary_in_place(UnaryOp::name, #name "_", x, {}); }
#define FIRN_ONE(name, Op, p)                                                                      \
  Tensor firn::name(const Tensor& x, double p) { return unary(UnaryOp::name, #name, x, {p, 0}); }  \
  Tensor& firn::name##_(Tensor& x, double p) {                                                     \
    return unary_in_place(UnaryOp::name, #name "_", x, {p, 0});                                    \
  }
#define FIRN_TWO(name, Op, p, q)                                                                   \
  Tensor firn::name(const Tensor& x, double p, double q) {                                         \
    return unary(UnaryOp::name, #name, x, {p, q});                                                 \
  }                                                                                                \
  Tensor& firn::name##_(Tensor& x, double p, double q) {                                           \
    return unary_in_place(UnaryOp::name, #name "_", x, {p, q});                                    \
  }
#define FIRN_NUMBER(name, Op)
FIRN_UNARY_OPS(FIRN_PLAIN, FIRN_ONE, FIRN_TWO, FIRN_NUMBER)
#undef FIRN_PLAIN
#undef FIRN_ONE
#undef FIRN_TWO
#undef FIRN_NUMBER
// clang-format on

Tensor firn::add(const Tensor& a, double b) {
  return with_number(UnaryOp::add_number, "add", a, b);
}
Tensor firn::sub(const Tensor& a, double b) { return minus_number("sub", a, b); }
Tensor firn::mul(const Tensor& a, double b) {
  return with_number(UnaryOp::mul_number, "mul", a, b);
}
Tensor firn::div(const Tensor& a, double b) {
  return with_number(UnaryOp::div_number, "div", a, b);
}
Tensor firn::pow(const Tensor& base, double b) {
  ops::require_floating("pow", base);
  // One policy for all exponents.
  const ops::Autocasted in(math::info(UnaryOp::pow_number).autocast, base);
  const Tensor& a = in[0];
  // Powers with a cheaper formula of their own.
  if (b == 2) return unary(UnaryOp::square, "pow", a, {});
  if (b == 0.5) return unary(UnaryOp::sqrt, "pow", a, {});
  if (b == -1) return unary(UnaryOp::reciprocal, "pow", a, {});
  return with_number(UnaryOp::pow_number, "pow", a, b);
}
Tensor firn::operator-(double a, const Tensor& b) {
  return with_number(UnaryOp::number_sub, "sub", b, a);
}
Tensor firn::operator/(double a, const Tensor& b) {
  return with_number(UnaryOp::number_div, "div", b, a);
}

Tensor& firn::add_(Tensor& a, double b) {
  return with_number_in_place(UnaryOp::add_number, "add_", a, b);
}
Tensor& firn::sub_(Tensor& a, double b) { return minus_number_in_place("sub_", a, b); }
Tensor& firn::mul_(Tensor& a, double b) {
  return with_number_in_place(UnaryOp::mul_number, "mul_", a, b);
}
Tensor& firn::div_(Tensor& a, double b) {
  return with_number_in_place(UnaryOp::div_number, "div_", a, b);
}
