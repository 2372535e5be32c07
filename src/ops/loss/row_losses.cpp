// Losses term by term of distributions, rows and samples, made of tensor operations.
#include <cmath>

#include "firn/ops/distance.h"
#include "ops/loss/loss_terms.h"
#include "ops/small_number.h"

namespace firn {

using namespace ops;

namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

}  // namespace

// ---- Negative log-likelihoods ----

LossTerms poisson_nll_terms(const Tensor& input, const Tensor& target,
                            const PoissonNllOptions& options) {
  constexpr const char* kOp = "poisson_nll";
  require_pair(kOp, input, target);
  require_number(kOp, "eps", options.eps, 0, true, "1e-8 is usual");
  ops::require_seen(kOp, "eps", options.eps, input.dtype());
  const Tensor x = wide(input), t = wide(target);
  const Tensor terms = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
  if (!options.full) return {terms};
  const Tensor large = gt(t, 1), s = where(large, t, 1);  // where it is not used, it stays finite
  return {terms + where(large, s * log(s) - s + 0.5 * log(kTwoPi * s), 0)};
}
Loss poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options) {
  return poisson_nll_terms(input, target, options).loss();
}

LossTerms gaussian_nll_terms(const Tensor& mean, const Tensor& target, const Tensor& variance,
                             const GaussianNllOptions& options) {
  constexpr const char* kOp = "gaussian_nll";
  require_pair(kOp, mean, target);
  require_floating(kOp, variance);
  require_number(kOp, "eps", options.eps, 0, true, "1e-6 is usual");
  ops::require_seen(kOp, "eps", options.eps, mean.dtype());
  const Tensor m = wide(mean), t = wide(target);
  Tensor v = wide(variance);
  if (v.rank() + 1 == m.rank()) v = unsqueeze(v, -1);
  bool fits = v.rank() == m.rank() && v.dtype() == m.dtype() && v.device() == m.device();
  for (int i = 0; fits && i < m.rank(); ++i)
    fits = v.size(i) == m.size(i) || (i + 1 == m.rank() && v.size(i) == 1);
  FIRN_CHECK(fits, kOp, "give one for each mean, or one for each row: size 1 on the last axis",
             "variance {} for means {}", describe(variance), describe(mean));
  // The value is clamped; the gradient is that of v.
  const Tensor now = v.detach();
  v = v + (maximum(now, options.eps) - now);
  const Tensor terms = 0.5 * (log(v) + square(m - t) / v);
  return {options.full ? terms + 0.5 * std::log(kTwoPi) : terms};
}
Loss gaussian_nll_loss(const Tensor& mean, const Tensor& target, const Tensor& variance,
                       const GaussianNllOptions& options) {
  return gaussian_nll_terms(mean, target, variance, options).loss();
}

// ---- Rows ----

LossTerms cosine_embedding_terms(const Tensor& a, const Tensor& b, const Tensor& target,
                                 double margin) {
  constexpr const char* kOp = "cosine_embedding";
  require_pair(kOp, a, b);
  require_defined(kOp, target);
  FIRN_CHECK(a.rank() > 0, kOp, "rows lie on the last axis", "{} has no rows", describe(a));
  Shape rows = a.shape();
  rows.erase(rows.size() - 1);
  FIRN_CHECK(target.shape() == rows && target.device() == a.device(), kOp,
             "one class, 1 or -1, for each row", "target {} for rows of {}", describe(target),
             describe(a));
  FIRN_CHECK(margin >= -1 && margin <= 1, kOp, "0 to 0.5 is usual", "margin is {}, not in [-1, 1]",
             margin);
  constexpr double kTiny = 1e-12;  // PyTorch's
  const Tensor x = wide(a), y = wide(b);
  const Tensor cosine =
      sum(x * y, -1) * rsqrt((sum(square(x), -1) + kTiny) * (sum(square(y), -1) + kTiny));
  const Tensor apart = clamp(cosine - margin, 0, HUGE_VAL);
  return {where(eq(target, 1), 1 - cosine, where(eq(target, -1), apart, 0))};
}
Loss cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin) {
  return cosine_embedding_terms(a, b, target, margin).loss();
}

LossTerms triplet_margin_terms(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                               const TripletMarginOptions& options) {
  constexpr const char* kOp = "triplet_margin";
  require_pair(kOp, anchor, positive);
  require_pair(kOp, anchor, negative);
  FIRN_CHECK(anchor.rank() > 0, kOp, "rows lie on the last axis", "{} has no rows",
             describe(anchor));
  require_number(kOp, "margin", options.margin, 0, true, "1 is usual");
  FIRN_CHECK(options.p > 0, kOp, "2 is the Euclidean distance", "p is {}, not above 0", options.p);
  require_number(kOp, "eps", options.eps, 0, false, "1e-6 is usual");
  const Tensor a = wide(anchor), p = wide(positive), n = wide(negative);
  const auto distance = [&](const Tensor& from, const Tensor& to) {
    return pairwise_distance(from, to, {.p = options.p, .eps = options.eps});
  };
  Tensor far = distance(a, n);
  if (options.swap) far = minimum(far, distance(p, n));
  return {clamp(distance(a, p) - far + options.margin, 0, HUGE_VAL)};
}
Loss triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                         const TripletMarginOptions& options) {
  return triplet_margin_terms(anchor, positive, negative, options).loss();
}

// ---- Samples ----

LossTerms dice_terms(const Tensor& probabilities, const Tensor& target, double smooth) {
  constexpr const char* kOp = "dice";
  require_pair(kOp, probabilities, target);
  FIRN_CHECK(probabilities.rank() >= 2, kOp, "the first axis counts samples: unsqueeze(x, 0)",
             "{} has no axis beside the samples", describe(probabilities));
  require_number(kOp, "smooth", smooth, 0, false, "1 is usual");
  const Tensor p = flatten(wide(probabilities), 1), y = flatten(wide(target), 1);
  const Tensor common = sum(p * y, 1), all = sum(p, 1) + sum(y, 1);
  return {1 - (2 * common + smooth) / (all + smooth)};
}
Loss dice_loss(const Tensor& probabilities, const Tensor& target, double smooth) {
  return dice_terms(probabilities, target, smooth).loss();
}

}  // namespace firn
