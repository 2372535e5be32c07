// Elementwise ops of three operands with broadcasting: where() and ops made of it, and the ops
// whose formulas and gradients are in kernels/math/ternary.h.
#include "firn/ops/elementwise.h"
#include "kernels/elementwise.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/symbolic.h"
#include "ops/gradient/again.h"
#include "ops/in_place.h"

namespace firn {
namespace {

using namespace ops;
using math::Args;
using math::TernaryOp;

// ---- Choice by a condition ----

void require_condition(const char* name, const Tensor& condition) {
  require_defined(name, condition);
  FIRN_CHECK(condition.dtype() == boolean, name, "compare first: firn::ne(c, 0)",
             "the condition must be bool, got {}", describe(condition));
}
void require_device(const char* name, const Tensor& condition, const Tensor& like) {
  FIRN_CHECK(condition.device() == like.device(), name, "move one of them: x.to(device)",
             "devices differ: {} and {}", describe(condition), describe(like));
}

/// Records out = condition ? a : b.
Tensor record_where(const char* name, const Tensor& condition, const Tensor& a, const Tensor& b,
                    Tensor out) {
  const auto backward = [](Backward& bw) {
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
  };
  return record(name, std::move(out), {&a, &b}, {Saved::other(condition)},
                with_again(backward, [](GraphBackward& bw) {
                  if (bw.needs(0)) bw.add(0, where(bw.saved(0), bw.grad(), 0.0));
                  if (bw.needs(1)) bw.add(1, where(bw.saved(0), 0.0, bw.grad()));
                }));
}

// ---- Formulas ----

struct Operands {
  const Tensor &a, &b, &c;
};

/// The caller has made casts. c may have another floating dtype than a and b: a number is not
/// rounded to 16 bits.
Tensor ternary(TernaryOp op, const char* name, const Operands& x, Args args = {}) {
  const auto& [a, b, c] = x;
  const Shape shape = broadcast_shapes(name, result_shape(name, a, b), c.shape());
  Tensor out = empty(shape, a.dtype(), a.device(), result_format(shape, a, b, c));
  kernels::ternary(op, broadcast_to(a.view(), shape), broadcast_to(b.view(), shape),
                   broadcast_to(c.view(), shape), out.mutable_view(), args, stream_of(a));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(name, {{"formula", math::info(op).name},
                                {"a", args.a},
                                {"operand", &a},
                                {"operand", &b},
                                {"operand", &c}});
  const math::TernaryInfo& info = math::info(op);
  int reads = 0;
  if (a.requires_grad()) reads |= info.reads[0];
  if (b.requires_grad()) reads |= info.reads[1];
  if (c.requires_grad()) reads |= info.reads[2];
  return record(
      name, std::move(out), {&a, &b, &c},
      {saved_if(reads, 0, a), saved_if(reads, 1, b), saved_if(reads, 2, c)},
      with_again(
          [op, reads, args](Backward& bw) {
            const auto kernel = [&](int i, const ConstView& dy, const std::array<ConstView, 3>& v,
                                    const View& grad, float beta) {
              kernels::ternary_backward(op, i, dy, v[0], v[1], v[2], grad, args, beta, bw.stream());
            };
            backward_of<3>(bw, reads, math::info(op).passes, kernel);
          },
          [op, reads, args](GraphBackward& bw) {
            const auto operand = [&](int i) {
              return holds(reads, i) ? cast(bw.input(i, i), bw.grad().dtype()) : bw.grad();
            };
            for (int i = 0; i < 3; ++i)
              if (bw.needs(i))
                bw.add(i, ternary_gradient(op, i, bw.grad(), operand(0), operand(1), operand(2),
                                           args));
          }));
}

/// Records the operation on three tensors.
Tensor ternary(TernaryOp op, const char* name, const Tensor& a, const Tensor& b, const Tensor& c,
               Args args = {}) {
  for (const Tensor* t : {&a, &b, &c}) require_defined(name, *t);
  const Autocasted in(math::info(op).autocast, a, b, c);
  require_same(name, in[0], in[1]);
  require_same(name, in[0], in[2]);
  require_dtype(math::info(op), name, in[0]);
  return ternary(op, name, {in[0], in[1], in[2]}, args);
}

/// Returns a number beside floating operands, in their compute dtype.
Tensor number_beside(const Tensor& x, double number) {
  return full({}, number, compute_dtype(x.dtype()), x.device());
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
  require_condition("where", condition);
  const Autocasted in(Policy::promote, left, right);
  const Tensor &a = in[0], &b = in[1];
  require_same("where", a, b);
  require_device("where", condition, a);
  const Shape shape = broadcast_shapes("where", result_shape("where", a, b), condition.shape());
  Tensor out = empty(shape, a.dtype(), a.device(), result_format(shape, a, b));
  kernels::where(broadcast_to(condition.view(), shape), broadcast_to(a.view(), shape),
                 broadcast_to(b.view(), shape), out.mutable_view(), 0, stream_of(a));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("where", {{"condition", &condition}});
  return record_where("where", condition, a, b, std::move(out));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  require_condition("masked_fill", mask);
  return where(mask, operand_like("masked_fill", x, value), x);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  require_condition("masked_fill", mask);
  require_defined("masked_fill", value);
  FIRN_CHECK(value.rank() == 0, "masked_fill", "where(mask, a, b) takes two tensors of any shape",
             "the value has axes: {}", describe(value));
  return where(mask, value, x);
}

Tensor& masked_fill_(Tensor& x, const Tensor& mask, double value) {
  constexpr const char* name = "masked_fill_";
  require_defined(name, x);
  require_condition(name, mask);
  require_device(name, mask, x);
  const Tensor number = operand_like(name, x, value);
  FIRN_CHECK(broadcast_shapes(name, x.shape(), mask.shape()) == x.shape(), name,
             "use the form without underscore", "the mask {} does not fit {}", describe(mask),
             describe(x));
  const bool recorded = autograd::detail::needs_recording({&x});
  autograd::check_in_place(name, x, recorded);
  const Tensor condition = readable_beside(x, mask);
  // These are the operands as they are before the write.
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(
        name, {{"formula", "where"}, {"condition", &mask}, {"operand", &number}, {"operand", &x}});
  kernels::where(broadcast_to(condition.view(), x.shape()), broadcast_to(number.view(), x.shape()),
                 x.view(), x.mutable_view(), 0, stream_of(x));
  x.storage()->bump_version(name);
  if (recorded) {
    x = record_where(name, condition, number, x, x.detach());
  } else {
    autograd::unrecorded(name, x, {&number, &x});
  }
  return x;
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  return ternary(TernaryOp::lerp, "lerp", a, b, weight);
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  require_defined("lerp", a);
  require_defined("lerp", b);
  const Autocasted in(math::info(TernaryOp::lerp).autocast, a, b);
  require_same("lerp", in[0], in[1]);
  require_floating("lerp", in[0]);
  return ternary(TernaryOp::lerp, "lerp", {in[0], in[1], number_beside(in[0], weight)});
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  require_defined("addcmul", x);
  if (!is_floating(x.dtype())) require_holds("addcmul", x.dtype(), value);
  return ternary(TernaryOp::addcmul, "addcmul", x, a, b, {value});
}

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  require_defined("clamp", x);
  FIRN_CHECK(low.defined() || high.defined(), "clamp", "give at least one bound",
             "neither bound of {} is defined", describe(x));
  if (low.defined() && high.defined())
    return ternary(TernaryOp::clamp_between, "clamp", x, low, high);
  if (!is_floating(x.dtype())) return low.defined() ? maximum(x, low) : minimum(x, high);
  const Autocasted in(math::info(TernaryOp::clamp_between).autocast, x, low.defined() ? low : high);
  require_same("clamp", in[0], in[1]);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor none = number_beside(in[0], low.defined() ? kInfinity : -kInfinity);
  return low.defined() ? ternary(TernaryOp::clamp_between, "clamp", {in[0], in[1], none})
                       : ternary(TernaryOp::clamp_between, "clamp", {in[0], none, in[1]});
}

}  // namespace firn
