// Elementwise ops of one operand, and of a tensor and a number. Their formulas, gradients and
// properties are in kernels/math/unary.h and activation.h; the end of this file generates the
// functions of their lists.
#include <cmath>
#include <limits>

#include "firn/ops/elementwise.h"
#include "firn/ops/ops.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/symbolic.h"
#include "ops/gradient/again.h"
#include "ops/in_place.h"

namespace firn {
namespace {

using namespace ops;
using math::Args;
using math::Saves;
using math::UnaryOp;

void check_dtype(UnaryOp op, const char* name, const Tensor& x) {
  require_defined(name, x);
  require_dtype(math::info(op), name, x);
}

void check_parameters(UnaryOp op, const char* name, Args args) {
  FIRN_CHECK(op != UnaryOp::celu || args.a != 0, name, "give another alpha",
             "alpha is {}, and x is divided by it", args.a);
  FIRN_CHECK(op != UnaryOp::softshrink || args.a >= 0, name, "0 keeps all elements",
             "lambda is {}, and must not be negative", args.a);
}

/// Adds the gradient of a step: a first contribution is stored, a later one changes nothing.
void add_zeros(Backward& b) {
  const auto [dx, beta] = b.sink(0);
  if (beta == 0) kernels::fill(dx.mutable_view(), 0, b.stream());
}

/// Records y = op(x); `input` is x, or a copy of it if y overwrote x.
Tensor record_unary(UnaryOp op, const char* name, const Tensor& x, const Tensor& input, Tensor y,
                    Args args) {
  const auto backward = with_again(
      [op, args](Backward& b) {
        if (op == UnaryOp::add_number) return b.accumulate(0, b.grad());
        if (math::info(op).flat) return add_zeros(b);
        const Tensor& saved = math::info(op).saves == Saves::none ? b.grad() : b.saved(0);
        const auto [dx, beta] = b.sink(0);
        kernels::unary_backward(op, b.grad().view(), saved.view(), dx.mutable_view(), args, beta,
                                b.stream());
      },
      [op, args](GraphBackward& b) {
        const Saves saves = math::info(op).saves;
        b.add(0, unary_gradient(op, b.grad(),
                                saves == Saves::none    ? b.grad()
                                : saves == Saves::input ? b.input(0, 0)
                                                        : b.output(0),
                                args));
      });
  switch (math::info(op).saves) {
    case Saves::none:
      return record(name, std::move(y), {&x}, {}, backward);
    case Saves::input:
      return record(name, std::move(y), {&x}, {Saved::other(input)}, backward);
    default:
      return record(name, std::move(y), {&x}, {Saved::output()}, backward);
  }
}

/// Gives x too, since an in-place form has overwritten it when it is recorded.
void give_attributes(UnaryOp op, const char* name, const Tensor& x, Args args) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(name, {{"formula", math::info(op).name},
                                {"a", args.a},
                                {"b", args.b},
                                {"c", args.c},
                                {"operand", &x}});
}

/// A bound that is NaN makes all elements NaN, as by tensors; the formula would pass over it.
void settle_bounds(UnaryOp& op, Args& args) {
  if (op != UnaryOp::clamp && op != UnaryOp::hardtanh) return;
  if (!std::isnan(args.a) && !std::isnan(args.b)) return;
  op = UnaryOp::add_number;
  args = {std::numeric_limits<double>::quiet_NaN(), 0};
}

Tensor unary(UnaryOp op, const char* name, const Tensor& operand, Args args) {
  const Autocasted in(math::info(op).autocast, operand);
  const Tensor& x = in[0];
  check_dtype(op, name, x);
  check_parameters(op, name, args);
  settle_bounds(op, args);
  const bool question = math::info(op).gives_bool;
  Tensor y =
      question ? empty(x.shape(), boolean, x.device(), result_format(x.shape(), x)) : empty_like(x);
  kernels::unary(op, x.view(), y.mutable_view(), args, stream_of(x));
  give_attributes(op, name, x, args);
  if (question) {
    autograd::unrecorded(name, y, {&x});
    return y;
  }
  return record_unary(op, name, x, x, std::move(y), args);
}

/// The in-place form keeps x's dtype under autocast.
Tensor& unary_in_place(UnaryOp op, const char* name, Tensor& x, Args args) {
  check_dtype(op, name, x);
  check_parameters(op, name, args);
  settle_bounds(op, args);
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

/// Returns the replacements. Without a value an infinity becomes the largest finite number.
Args replacements(const Tensor& x, double nan, const std::optional<double>& posinf,
                  const std::optional<double>& neginf) {
  return {nan, posinf.value_or(max_of(x.dtype())), neginf.value_or(-max_of(x.dtype()))};
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns the complement. That of a bool is the other value, not -1 - x.
UnaryOp complement(const char* name, const Tensor& x) {
  require_defined(name, x);
  return x.dtype() == boolean ? UnaryOp::logical_not : UnaryOp::bitwise_not;
}

}  // namespace
}  // namespace firn

// The public functions. A qualified name defines only what a header has declared.
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
#define FIRN_QUESTION(name, Op)                                                                    \
  Tensor firn::name(const Tensor& x) { return unary(UnaryOp::name, #name, x, {}); }
#define FIRN_INNER(name, Op)
FIRN_UNARY_OPS(FIRN_PLAIN, FIRN_ONE, FIRN_TWO, FIRN_QUESTION, FIRN_INNER)
#undef FIRN_PLAIN
#undef FIRN_ONE
#undef FIRN_TWO
#undef FIRN_QUESTION
#undef FIRN_INNER
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
  firn::require_defined("pow", base);
  if (!is_floating(base.dtype())) {
    FIRN_CHECK(b >= 0 && b == std::floor(b), "pow", "cast the base: x.to(firn::f32)",
               "{} to the power of {} is no integer", describe(base), b);
    return pow(base, ops::operand_like("pow", base, b));
  }
  // One policy for all exponents.
  const ops::Autocasted in(math::info(UnaryOp::pow_number).autocast, base);
  const Tensor& a = in[0];
  // Powers with a cheaper formula of their own.
  if (b == 2) return unary(UnaryOp::square, "pow", a, {});
  if (b == 0.5) return unary(UnaryOp::sqrt, "pow", a, {});
  if (b == -1) return unary(UnaryOp::reciprocal, "pow", a, {});
  return with_number(UnaryOp::pow_number, "pow", a, b);
}
Tensor firn::pow(double a, const Tensor& operand) {
  firn::require_defined("pow", operand);
  const ops::Autocasted in(math::info(UnaryOp::pow_number).autocast, operand);
  // In the compute dtype, so that `a` is not rounded to 16 bits.
  const Tensor b = is_floating(in[0].dtype()) ? cast(in[0], compute_dtype(in[0].dtype())) : in[0];
  return cast(pow(ops::operand_like("pow", b, a), b), in[0].dtype());
}

Tensor firn::clamp_min(const Tensor& x, double low) {
  firn::require_defined("clamp_min", x);
  if (!is_floating(x.dtype())) {
    require_holds("clamp_min", x.dtype(), low);
    return maximum(x, low);
  }
  return unary(UnaryOp::clamp, "clamp_min", x, {low, kInfinity});
}
Tensor firn::clamp_max(const Tensor& x, double high) {
  firn::require_defined("clamp_max", x);
  if (!is_floating(x.dtype())) {
    require_holds("clamp_max", x.dtype(), high);
    return minimum(x, high);
  }
  return unary(UnaryOp::clamp, "clamp_max", x, {-kInfinity, high});
}
Tensor& firn::clamp_min_(Tensor& x, double low) {
  return unary_in_place(UnaryOp::clamp, "clamp_min_", x, {low, kInfinity});
}
Tensor& firn::clamp_max_(Tensor& x, double high) {
  return unary_in_place(UnaryOp::clamp, "clamp_max_", x, {-kInfinity, high});
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

Tensor firn::relu6(const Tensor& x) { return hardtanh(x, 0, 6); }
Tensor firn::tanhshrink(const Tensor& x) {
  firn::require_defined("tanhshrink", x);
  return ops::rounded_once([](const Tensor& t) { return sub(t, tanh(t)); }, x);
}
Tensor firn::glu(const Tensor& x, std::int64_t axis) {
  ops::require_floating("glu", x);
  const int a = firn::normalize_axis("glu", axis, x.rank());
  FIRN_CHECK(x.size(a) % 2 == 0, "glu", "the axis holds two halves",
             "axis {} of {} has an odd size", axis, describe(x));
  const Tensor wide = cast(x, compute_dtype(x.dtype()));
  const std::int64_t half = x.size(a) / 2;
  return cast(mul(slice(wide, a, 0, half), sigmoid(slice(wide, a, half, 2 * half))), x.dtype());
}

Tensor firn::bitwise_not(const Tensor& x) {
  return unary(complement("bitwise_not", x), "bitwise_not", x, {});
}
Tensor& firn::bitwise_not_(Tensor& x) {
  return unary_in_place(complement("bitwise_not_", x), "bitwise_not_", x, {});
}
Tensor firn::nan_to_num(const Tensor& x, double nan, std::optional<double> posinf,
                        std::optional<double> neginf) {
  firn::require_defined("nan_to_num", x);
  if (!is_floating(x.dtype())) return clone(x);
  return unary(UnaryOp::nan_to_num, "nan_to_num", x, replacements(x, nan, posinf, neginf));
}
Tensor& firn::nan_to_num_(Tensor& x, double nan, std::optional<double> posinf,
                          std::optional<double> neginf) {
  firn::require_defined("nan_to_num_", x);
  if (!is_floating(x.dtype())) return x;
  return unary_in_place(UnaryOp::nan_to_num, "nan_to_num_", x,
                        replacements(x, nan, posinf, neginf));
}
