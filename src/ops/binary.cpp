// Elementwise ops of two operands with broadcasting, comparisons, and where. Formulas and gradients
// are in kernels/math/binary.h; the end of this file generates the functions of its list.
#include "kernels/elementwise.h"
#include "ops/common.h"
#include "ops/in_place.h"

namespace firn {
namespace {

using namespace ops;
using math::BinaryOp;

void check_operands(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  require_same(name, a, b);
  if (is_floating(a.dtype())) return;
  if (!math::info(op).integers) require_floating(name, a);
  FIRN_CHECK(a.dtype() != boolean || math::info(op).compares, name, "cast them: x.to(firn::i32)",
             "does not take bool: {}, {}", describe(a), describe(b));
}

Shape result_shape(const char* name, const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() ? a.shape() : broadcast_shapes(name, a.shape(), b.shape());
}

/// Computes the gradient of input i: `kernel(grad, beta)` writes beta*grad + contribution; the
/// contribution has the output's shape. If the input was broadcast, it goes to a temporary in the
/// compute dtype, which is summed over the repeated axes.
template <class Kernel>
void contribute(Backward& b, int i, Kernel&& kernel) {
  const Shape& shape = b.grad().shape();
  if (b.input_shape(i) == shape) {
    const auto [grad, beta] = b.sink(i);
    kernel(grad.mutable_view(), beta);
  } else {
    const Tensor full = empty(shape, compute_dtype(b.input_dtype(i)), b.grad().device(),
                              result_format(shape, b.grad()));
    kernel(full.mutable_view(), 0.f);
    accumulate_broadcast(b, i, full);
  }
}

/// The operands that the required gradients read: a set of math::Operands.
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
  const auto saved_if = [&](int which, const Tensor& t) {
    return Saved::other((reads & which) != 0 ? t : Tensor());
  };
  const auto backward = [op, reads](Backward& bw) {
    const ConstView dy = bw.grad().view();
    // A formula that does not read an operand gets dy in its place.
    const ConstView av = reads & math::kA ? broadcast_to(bw.saved(0).view(), dy.shape) : dy;
    const ConstView bv = reads & math::kB ? broadcast_to(bw.saved(1).view(), dy.shape) : dy;
    for (int i = 0; i < 2; ++i) {
      if (!bw.needs(i)) continue;
      if (op == BinaryOp::add || (op == BinaryOp::sub && i == 0)) {
        accumulate_broadcast(bw, i, bw.grad());
        continue;
      }
      contribute(bw, i, [&](const View& grad, float beta) {
        kernels::binary_backward(op, i, dy, av, bv, grad, math::Args{}, beta, bw.stream());
      });
    }
  };
  if (reads == math::kNeither) return record(name, std::move(out), {&a, &b}, {}, backward);
  return record(name, std::move(out), {&a, &b},
                {saved_if(math::kA, a_value), saved_if(math::kB, b_value)}, backward);
}

/// a and b are given too, since an in-place form has overwritten a when it is recorded.
void give_attributes(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(name,
                         {{"formula", math::info(op).name}, {"operand", &a}, {"operand", &b}});
}

Tensor binary(BinaryOp op, const char* name, const Tensor& left, const Tensor& right) {
  require_defined(name, left);
  require_defined(name, right);
  const Autocasted in(math::info(op).autocast, left, right);
  const Tensor &a = in[0], &b = in[1];
  check_operands(op, name, a, b);
  const Shape shape = result_shape(name, a, b);
  const bool compares = math::info(op).compares;
  Tensor out = empty(shape, compares ? boolean : a.dtype(), a.device(), result_format(shape, a, b));
  kernels::binary(op, broadcast_to(a.view(), shape), broadcast_to(b.view(), shape),
                  out.mutable_view(), math::Args{}, stream_of(a));
  give_attributes(op, name, a, b);
  if (compares || !autograd::detail::needs_recording({&a, &b})) {
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

  give_attributes(op, name, a, b);
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

/// A number as an operand, with the dtype of `like`.
Tensor operand_like(const char* name, const Tensor& like, double number) {
  require_defined(name, like);
  require_holds(name, like.dtype(), number);
  return full({}, number, like.dtype(), like.device());
}

Tensor binary(BinaryOp op, const char* name, const Tensor& a, double b) {
  return binary(op, name, a, operand_like(name, a, b));
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return where(condition, a, operand_like("where", a, b));
}
Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return where(condition, operand_like("where", b, a), b);
}
Tensor where(const Tensor& condition, double a, double b) {
  require_defined("where", condition);
  return where(condition, full({}, a, condition.device()), full({}, b, condition.device()));
}

Tensor where(const Tensor& condition, const Tensor& left, const Tensor& right) {
  require_defined("where", condition);
  const Autocasted in(Policy::promote, left, right);
  const Tensor &a = in[0], &b = in[1];
  require_same("where", a, b);
  FIRN_CHECK(condition.dtype() == boolean, "where", "compare first: firn::ne(c, 0)",
             "the condition must be bool, got {}", describe(condition));
  FIRN_CHECK(condition.device() == a.device(), "where", "move one of them: x.to(device)",
             "devices differ: {} and {}", describe(condition), describe(a));
  const Shape shape = broadcast_shapes("where", result_shape("where", a, b), condition.shape());
  Tensor out = empty(shape, a.dtype(), a.device(), result_format(shape, a, b));
  kernels::where(broadcast_to(condition.view(), shape), broadcast_to(a.view(), shape),
                 broadcast_to(b.view(), shape), out.mutable_view(), 0, stream_of(a));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("where", {{"condition", &condition}});
  return record("where", out, {&a, &b}, {Saved::other(condition)}, [](Backward& bw) {
    const ConstView dy = bw.grad().view();
    const ConstView condition_view = broadcast_to(bw.saved(0).view(), dy.shape);
    const Tensor zero = zeros({}, bw.grad().dtype(), bw.grad().device());
    const ConstView zeros_view = broadcast_to(zero.view(), dy.shape);
    for (int i = 0; i < 2; ++i) {
      if (!bw.needs(i)) continue;
      contribute(bw, i, [&](const View& grad, float beta) {
        kernels::where(condition_view, i == 0 ? dy : zeros_view, i == 0 ? zeros_view : dy, grad,
                       beta, bw.stream());
      });
    }
  });
}

}  // namespace firn

// The public functions. A qualified name defines only what ops.h has declared.
using firn::Tensor;
using firn::math::BinaryOp;

// clang-format off
#define FIRN_OPERATOR(name, Op)                                                                    \
  Tensor firn::name(const Tensor& a, const Tensor& b) { return binary(BinaryOp::name, #name, a, b); }
#define FIRN_COMPARISON(name, Op)                                                                  \
  FIRN_OPERATOR(name, Op)                                                                          \
  Tensor firn::name(const Tensor& a, double b) { return binary(BinaryOp::name, #name, a, b); }
#define FIRN_LOSS(name, Op)
FIRN_BINARY_OPS(FIRN_OPERATOR, FIRN_COMPARISON, FIRN_LOSS)
#undef FIRN_OPERATOR
#undef FIRN_COMPARISON
#undef FIRN_LOSS
// clang-format on

Tensor firn::minimum(const Tensor& a, double b) {
  return binary(BinaryOp::minimum, "minimum", a, b);
}
Tensor firn::maximum(const Tensor& a, double b) {
  return binary(BinaryOp::maximum, "maximum", a, b);
}

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
