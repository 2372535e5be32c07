// Elementwise ops of two operands with broadcasting, and comparisons. Formulas and gradients are in
// kernels/math/binary.h; the end of this file generates the functions of its list.
#include "firn/ops/elementwise.h"
#include "kernels/elementwise.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/symbolic.h"
#include "ops/gradient/again.h"
#include "ops/in_place.h"

namespace firn {
namespace {

using namespace ops;
using math::BinaryOp;

void check_operands(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  require_same(name, a, b);
  require_dtype(math::info(op), name, a);
}

/// Returns the operands that the required gradients read: a set of math::Operands.
int operands_read(BinaryOp op, const Tensor& a, const Tensor& b) {
  int reads = math::kNeither;
  if (a.requires_grad()) reads |= math::info(op).dfa_reads;
  if (b.requires_grad()) reads |= math::info(op).dfb_reads;
  return reads;
}

/// Records out = op(a, b). Backward reads `a_value` and `b_value`: a and b, or copies if out
/// overwrote them.
Tensor record_binary(BinaryOp op, const char* name, const Tensor& a, const Tensor& b,
                     const Tensor& a_value, const Tensor& b_value, Tensor out) {
  const int reads = operands_read(op, a, b);
  const auto backward = with_again(
      [op, reads](Backward& bw) {
        const auto kernel = [&](int i, const ConstView& dy, const std::array<ConstView, 2>& v,
                                const View& grad, float beta) {
          kernels::binary_backward(op, i, dy, v[0], v[1], grad, math::Args{}, beta, bw.stream());
        };
        backward_of<2>(bw, reads, math::info(op).passes, kernel);
      },
      [op, reads](GraphBackward& bw) {
        const auto operand = [&](int i) { return holds(reads, i) ? bw.input(i, i) : bw.grad(); };
        for (int i = 0; i < 2; ++i)
          if (bw.needs(i)) bw.add(i, binary_gradient(op, i, bw.grad(), operand(0), operand(1)));
      });
  if (reads == math::kNeither) return record(name, std::move(out), {&a, &b}, {}, backward);
  return record(name, std::move(out), {&a, &b},
                {saved_if(reads, 0, a_value), saved_if(reads, 1, b_value)}, backward);
}

/// Gives a and b too, since an in-place form has overwritten a when it is recorded.
void give_attributes(BinaryOp op, const char* name, const Tensor& a, const Tensor& b,
                     math::Args args) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(name, {{"formula", math::info(op).name},
                                {"a", args.a},
                                {"b", args.b},
                                {"c", args.c},
                                {"operand", &a},
                                {"operand", &b}});
}

/// Formulas with a gradient have no arguments.
Tensor binary(BinaryOp op, const char* name, const Tensor& left, const Tensor& right,
              math::Args args = {}) {
  require_defined(name, left);
  require_defined(name, right);
  const Autocasted in(math::info(op).autocast, left, right);
  const Tensor &a = in[0], &b = in[1];
  check_operands(op, name, a, b);
  const Shape shape = result_shape(name, a, b);
  const bool gives_bool = math::info(op).gives_bool;
  Tensor out =
      empty(shape, gives_bool ? boolean : a.dtype(), a.device(), result_format(shape, a, b));
  kernels::binary(op, broadcast_to(a.view(), shape), broadcast_to(b.view(), shape),
                  out.mutable_view(), args, stream_of(a));
  give_attributes(op, name, a, b, args);
  if (gives_bool || !autograd::detail::needs_recording({&a, &b})) {
    autograd::unrecorded(name, out, {&a, &b});
    return out;
  }
  return record_binary(op, name, a, b, a, b, std::move(out));
}

Tensor& binary_in_place(BinaryOp op, const char* name, Tensor& a, const Tensor& operand) {
  require_defined(name, a);
  require_defined(name, operand);
  // The in-place form keeps the dtype of a: autocast casts the other operand to it.
  const bool casts = autocast_on() && a.dtype() != operand.dtype() && castable(a.dtype()) &&
                     castable(operand.dtype());
  const Tensor converted = casts ? cast(operand, a.dtype()) : Tensor();
  const Tensor& b = casts ? converted : operand;
  check_operands(op, name, a, b);
  FIRN_CHECK(result_shape(name, a, b) == a.shape(), name, "use the form without underscore",
             "the result {} does not fit {}", to_string(result_shape(name, a, b)), describe(a));
  const bool recorded = autograd::detail::needs_recording({&a, &b});
  autograd::check_in_place(name, a, recorded);

  const bool same = a.impl() == b.impl();
  const int reads = recorded ? operands_read(op, a, b) : 0;
  const bool overwritten = reads != 0 && share_memory(a.view(), b.view());
  const Tensor b_value = overwritten ? values_now(b) : readable_beside(a, b);
  Tensor a_value;
  if ((reads & math::kA) != 0) a_value = same ? b_value : values_now(a);

  give_attributes(op, name, a, b, {});
  kernels::binary(op, a.view(), broadcast_to(b_value.view(), a.shape()), a.mutable_view(),
                  math::Args{}, stream_of(a));
  a.storage()->bump_version(name);
  if (recorded) {
    a = record_binary(op, name, a, b, a_value, b_value, a.detach());
  } else {
    autograd::unrecorded(name, a, {&a, &b});
  }
  return a;
}

Tensor binary(BinaryOp op, const char* name, const Tensor& a, double b) {
  require_defined(name, a);
  const bool divides = op == BinaryOp::fmod || op == BinaryOp::remainder;
  FIRN_CHECK(!divides || b != 0 || is_floating(a.dtype()), name, "give another divisor",
             "an integer divided by 0: {}", describe(a));
  return binary(op, name, a, operand_like(name, a, b));
}

}  // namespace
}  // namespace firn

// The public functions. A qualified name defines only what a header has declared.
using firn::Tensor;
using firn::math::BinaryOp;

// clang-format off
#define FIRN_OPERATOR(name, Op)                                                                    \
  Tensor firn::name(const Tensor& a, const Tensor& b) { return binary(BinaryOp::name, #name, a, b); }
#define FIRN_WITH_NUMBER(name, Op)                                                                 \
  FIRN_OPERATOR(name, Op)                                                                          \
  Tensor firn::name(const Tensor& a, double b) { return binary(BinaryOp::name, #name, a, b); }
#define FIRN_INNER(name, Op)
FIRN_BINARY_OPS(FIRN_OPERATOR, FIRN_WITH_NUMBER, FIRN_INNER)
#undef FIRN_OPERATOR
#undef FIRN_WITH_NUMBER
#undef FIRN_INNER
// clang-format on

Tensor firn::prelu(const Tensor& x, const Tensor& weight) {
  firn::require_defined("prelu", x);
  firn::require_defined("prelu", weight);
  const std::int64_t n = weight.numel(), channels = x.rank() >= 2 ? x.size(1) : 1;
  FIRN_CHECK(weight.rank() <= 1 && (n == 1 || n == channels), "prelu",
             "give one slope, or one for each position of axis 1", "weight {} does not fit {}",
             describe(weight), describe(x));
  Shape shape;  // shape of the weight beside x
  if (n != 1) {
    shape = {n};
    for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(1);
  }
  return binary(BinaryOp::prelu, "prelu", x, reshape(weight, shape));
}

Tensor firn::isclose(const Tensor& a, const Tensor& b, const CloseOptions& options) try {
  const auto& [rtol, atol, equal_nan] = options;
  ops::require_same("isclose", a, b, false);
  FIRN_CHECK(rtol >= 0 && atol >= 0, "isclose", "tolerances are 0 or more", "rtol = {}, atol = {}",
             rtol, atol);
  const bool exact = rtol == 0 && atol == 0;
  if (is_floating(a.dtype()))
    return binary(BinaryOp::isclose, "isclose", a, b,
                  {rtol, exact ? -1 : atol, equal_nan ? 1. : 0});
  if (exact) return eq(a.detach(), b.detach());
  ops::require_computed("isclose", a);
  return binary(BinaryOp::isclose, "isclose", cast(a, f64), cast(b, f64), {rtol, atol});
}
FIRN_AS_OP("isclose")

Tensor& firn::add_(Tensor& a, const Tensor& b) {
  return binary_in_place(BinaryOp::add, "add_", a, b);
}
Tensor& firn::sub_(Tensor& a, const Tensor& b) {
  return binary_in_place(BinaryOp::sub, "sub_", a, b);
}
Tensor& firn::mul_(Tensor& a, const Tensor& b) {
  return binary_in_place(BinaryOp::mul, "mul_", a, b);
}
Tensor& firn::div_(Tensor& a, const Tensor& b) {
  return binary_in_place(BinaryOp::div, "div_", a, b);
}
