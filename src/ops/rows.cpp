// Operations on rows: softmax, log_softmax, layer_norm, rms_norm. Kernels see [rows, n].
#include "kernels/rows.h"

#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/small_number.h"

namespace firn {
namespace {

using namespace ops;

/// A row-major tensor's view as [rows, n]: the leading axes become one.
template <class V>
V as_rows(V v) {
  const std::int64_t n = v.shape.back();
  v.shape = {n == 0 ? 0 : v.shape.product() / n, n};
  v.strides = {n, 1};
  return v;
}
ConstView rows(const Tensor& t) { return as_rows(t.view()); }
View writable_rows(const Tensor& t) { return as_rows(t.mutable_view()); }

/// Runs in f32 under autocast, as do the norms.
Tensor softmax_along(const char* op, const Tensor& operand, std::int64_t axis, bool log) {
  const Autocasted in(Policy::fp32, operand);
  const Tensor& x = in[0];
  require_floating(op, x);
  FIRN_CHECK(x.rank() > 0, op, "x.reshape({1})", "{} has no axis", describe(x));
  const int a = normalize_axis(op, axis, x.rank());
  if (a != x.rank() - 1) return transpose(softmax_along(op, transpose(x, a, -1), -1, log), a, -1);
  const Tensor input = contiguous(x);
  const Tensor y = empty_like(input);
  kernels::softmax(rows(input), writable_rows(y), log, stream_of(y));
  const auto backward = [log](Backward& b) {
    const Tensor dy = contiguous(b.grad());
    const auto [dx, beta] = b.sink(0);
    kernels::softmax_backward(rows(dy), rows(b.saved(0)), writable_rows(dx), log, beta, b.stream());
  };
  return record(op, y, {&input}, {Saved::output()}, with_again(backward, [log](GraphBackward& b) {
                  const Tensor &dy = b.grad(), out = b.output(0);
                  b.add(0, log ? sub(dy, mul(exp(out), sum(dy, {-1}, true)))
                               : mul(out, sub(dy, sum(mul(dy, out), {-1}, true))));
                }));
}

/// Checks the weight or the bias of a normalisation over axes of size n.
void require_parameter(const char* op, const char* name, const Tensor& p, const Tensor& x) {
  if (!p.defined()) return;
  const Shape expected = {x.shape().back()};
  FIRN_CHECK(p.shape() == expected, op, "normalisation is over the last axis",
             "{} {} for x {}: expected shape {}", name, describe(p), describe(x), expected);
  FIRN_CHECK(
      (p.dtype() == x.dtype() || p.dtype() == compute_dtype(x.dtype())) && p.device() == x.device(),
      op, "cast or move it", "{} {} and x {} differ in dtype or device", name, describe(p),
      describe(x));
}

/// Computes both normalisations; `center` subtracts the mean (layer_norm).
Tensor norm_rows(const char* op, const Tensor& x_given, const Tensor& weight_given,
                 const Tensor& bias_given, double eps, bool center) {
  const Autocasted in(Policy::fp32, x_given, weight_given, bias_given);
  const Tensor &x = in[0], &weight = in[1], &bias = in[2];
  require_floating(op, x);
  FIRN_CHECK(x.rank() > 0, op, "x.reshape({1, n})", "{} has no axis", describe(x));
  FIRN_CHECK(eps >= 0, op, "eps keeps the variance off 0", "eps = {}", eps);
  ops::require_seen(op, "eps", eps, x.dtype());
  require_parameter(op, "weight", weight, x);
  require_parameter(op, "bias", bias, x);
  const Tensor input = contiguous(x);
  const Tensor w = weight.defined() ? contiguous(weight) : Tensor();
  const Tensor c = bias.defined() ? contiguous(bias) : Tensor();
  const auto view_of = [](const Tensor& t) { return t.defined() ? t.view() : ConstView{}; };

  const Tensor y = empty_like(input);
  const Shape per_row = {rows(input).shape[0]};
  const DType compute = compute_dtype(x.dtype());
  const Tensor mean = center ? empty(per_row, compute, x.device()) : Tensor();
  const Tensor rstd = empty(per_row, compute, x.device());
  kernels::norm(rows(input), view_of(w), view_of(c), eps, center, writable_rows(y),
                center ? mean.mutable_view() : View{}, rstd.mutable_view(), stream_of(y));

  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"eps", eps}});
  const auto backward = [center, view_of](Backward& b) {
    const Tensor dy = contiguous(b.grad());
    kernels::NormGrads grads;
    const auto give = [&b](int i, View& grad, float& grad_beta) {
      if (!b.needs(i)) return;
      const auto [g, beta] = b.sink(i);
      grad = i == 0 ? writable_rows(g) : g.mutable_view();
      grad_beta = beta;
    };
    give(0, grads.dx, grads.dx_beta);
    give(1, grads.dweight, grads.dweight_beta);
    give(2, grads.dbias, grads.dbias_beta);
    kernels::norm_backward(rows(dy), rows(b.saved(0)), view_of(b.saved(1)), view_of(b.saved(2)),
                           b.saved(3).view(), center, grads, b.stream());
  };
  const auto again = [center, eps](GraphBackward& b) {
    const bool weighed = b.saved(1).defined();
    add_composed(b, {{0, b.input(0, 0)}, {1, weighed ? b.input(1, 1) : Tensor()}},
                 [&](const std::vector<Tensor>& t) {
                   const Tensor middle = center ? sub(t[0], firn::mean(t[0], {-1}, true)) : t[0];
                   const Tensor scale = rsqrt(add(firn::mean(square(middle), {-1}, true), eps));
                   const Tensor unit = mul(middle, scale);
                   return weighed ? mul(unit, cast(t[1], unit.dtype())) : unit;
                 });
    if (b.needs(2)) b.add(2, b.grad());
  };
  return record(op, y, {&input, &w, &c},
                {Saved::input(0), Saved::input(1), Saved::other(mean), Saved::other(rstd)},
                with_again(backward, again));
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t axis) {
  return softmax_along("softmax", x, axis, false);
}
Tensor log_softmax(const Tensor& x, std::int64_t axis) {
  return softmax_along("log_softmax", x, axis, true);
}
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return norm_rows("layer_norm", x, weight, bias, eps, true);
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return norm_rows("rms_norm", x, weight, {}, eps, false);
}

}  // namespace firn
