// Weights of weight norm and spectral norm. Formulas: torch.nn.utils.parametrizations.
#include "firn/nn/parametrize.h"

#include <cmath>

#include "autograd/cycle.h"
#include "autograd/segment/trace.h"
#include "base/check.h"
#include "firn/autograd.h"
#include "firn/nn/init.h"
#include "firn/ops/autocast.h"
#include "firn/ops/ops.h"
#include "firn/ops/rearrange.h"
#include "firn/thread_context.h"
#include "ops/small_number.h"

namespace firn::nn::detail {
namespace {

Tensor wide(const Tensor& x) { return cast(x, compute_dtype(x.dtype())); }

/// [slices along the axis, their elements].
Tensor as_matrix(const Tensor& weight, std::int64_t axis) {
  return flatten(axis == 0 ? weight : movedim(weight, axis, 0), 1);
}

/// x / max(|x|, eps).
Tensor scaled(const Tensor& x, double eps) { return x / maximum(norm(x), eps); }

}  // namespace

void AllButWeight::parameter(std::string_view name, Parameter& p) {
  if (name != "weight") to_.parameter(name, p);
}

Tensor no_weight(const Tensor& weight) {
  return expand(full({}, std::nan(""), weight.dtype(), weight.device()), weight.shape());
}

Tensor lengths(const Tensor& v, std::optional<std::int64_t> axis) {
  if (!axis) return norm(v);
  const int at = normalize_axis("weight_norm", *axis, v.rank());
  Axes others;
  for (int i = 0; i < v.rank(); ++i)
    if (i != at) others.push_back(i);
  return others.empty() ? abs(v) : norm(v, others, true);  // an empty list would be all axes
}

Tensor with_lengths(const Tensor& v, const Tensor& g, std::optional<std::int64_t> axis) {
  const Tensor direction = wide(v);
  return cast(direction * (wide(g) / lengths(direction, axis)), v.dtype());
}

LargestSingularValue::LargestSingularValue(const Tensor& weight, std::int64_t axis, int iterations,
                                           double eps)
    : axis_(normalize_axis("spectral_norm", axis, weight.rank())),
      iterations_(iterations),
      eps_(eps) {
  FIRN_CHECK(iterations > 0, "spectral_norm", "1 is usual", "iterations = {} must be positive",
             iterations);
  FIRN_CHECK(std::isfinite(eps) && eps >= 0, "spectral_norm", "1e-12 is usual",
             "eps = {} is not a finite number of 0 or more", eps);
  ops::require_seen("spectral_norm", "eps", eps, weight.dtype());
  if (weight.rank() == 1) return;
  const NoGrad guard;
  const Tensor m = wide(as_matrix(weight, axis_));
  const auto drawn = [&](std::int64_t n) {
    const Tensor x = empty({n}, m.dtype(), m.device());
    init::normal_(x);
    return Buffer(scaled(x, eps), OnConversion::widen);
  };
  u = drawn(m.size(0));
  v = drawn(m.size(1));
  for (int i = 0; i < 15; ++i) {
    copy_(u, scaled(matmul(m, v), eps));
    copy_(v, scaled(matmul(transpose(m, 0, 1), u), eps));
  }
}

Tensor LargestSingularValue::divided(const Tensor& weight, bool update) const {
  if (weight.rank() == 1) return cast(scaled(wide(weight), eps_), weight.dtype());
  const NoAutocast exact;  // products of 16 bits would round the vectors
  const Tensor w = wide(weight), m = as_matrix(w, axis_);
  Tensor left = u, right = v;
  {
    const NoGrad guard;
    if (update) {
      FIRN_CHECK(!thread_context.trace, "spectral_norm",
                 "leave the layer out of checkpoints, or call eval() on it",
                 "a call in training mode moves the singular vectors, and cannot be repeated");
      for (int i = 0; i < iterations_; ++i) {
        left = scaled(matmul(m, right), eps_);
        right = scaled(matmul(transpose(m, 0, 1), left), eps_);
      }
      if (auto* const coupling = thread_context.coupling; coupling && coupling->layer.empty())
        coupling->layer = "a layer with spectral_norm moves its vectors at each call";
      autograd::about_to_change({&u, &v});
      copy_(u, left);
      copy_(v, right);
    } else {
      left = firn::clone(u);  // the graph keeps what a later call changes
      right = firn::clone(v);
    }
  }
  const Tensor largest = sum(left * matmul(m, right));
  return cast(w / largest, weight.dtype());
}

}  // namespace firn::nn::detail
