// Losses term by term: the loss of terms, and the losses of pairs of elements.
#include "ops/loss/loss_terms.h"

#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "ops/elementwise/symbolic.h"
#include "ops/gradient/again.h"
#include "ops/small_number.h"

namespace firn {

using namespace ops;
using math::BinaryOp;

// ---- Shared pieces ----

void ops::require_pair(const char* op, const Tensor& prediction, const Tensor& target) {
  require_floating(op, prediction);
  require_floating(op, target);
  FIRN_CHECK(prediction.shape() == target.shape(), op,
             "a loss does not broadcast: reshape or expand one of them",
             "shapes differ: prediction {}, target {}", describe(prediction), describe(target));
  FIRN_CHECK(compute_dtype(prediction.dtype()) == compute_dtype(target.dtype()) &&
                 prediction.device() == target.device(),
             op, "cast or move the target", "dtypes or devices differ: prediction {}, target {}",
             describe(prediction), describe(target));
}

void ops::require_number(const char* op, const char* name, double value, double least, bool above,
                         const char* hint) {
  FIRN_CHECK(std::isfinite(value) && (above ? value > least : value >= least), op, hint,
             "{} is {}, not {} {}", name, value, above ? "above" : "at least", least);
}

Tensor ops::record_pair(BinaryOp op, const Tensor& out, const Tensor& prediction,
                        const Tensor& target, math::Args args) {
  const auto backward = [op, args](Backward& b) {
    const Tensor& a = b.saved(0);
    const ConstView dy = broadcast_to(b.grad().view(), a.shape());
    for (int i = 0; i < 2; ++i) {
      if (!b.needs(i)) continue;
      const auto [grad, beta] = b.sink(i);
      kernels::binary_backward(op, i, dy, a.view(), b.saved(1).view(), grad.mutable_view(), args,
                               beta, b.stream());
    }
  };
  return record(math::info(op).name, out, {&prediction, &target},
                {Saved::input(0), Saved::input(1)},
                with_again(backward, [op, args](GraphBackward& b) {
                  const Tensor x = wide(b.input(0, 0)), y = wide(b.input(1, 1));
                  const Tensor dy = expand(b.grad(), x.shape());
                  for (int i = 0; i < 2; ++i)
                    if (b.needs(i)) b.add(i, binary_gradient(op, i, dy, x, y, args));
                }));
}

Tensor ops::pair_terms(BinaryOp op, const Tensor& prediction, const Tensor& target,
                       math::Args args) {
  const Tensor out =
      empty(prediction.shape(), compute_dtype(prediction.dtype()), prediction.device());
  kernels::binary(op, prediction.view(), target.view(), out.mutable_view(), args,
                  stream_of(prediction));
  return record_pair(op, out, prediction, target, args);
}

Tensor ops::spread(const char* op, const char* name, const Tensor& t, const Shape& shape) {
  bool fits = t.rank() <= shape.size();
  for (int i = 1; fits && i <= t.rank(); ++i)
    fits = t.size(-i) == 1 || t.size(-i) == shape[shape.size() - i];
  FIRN_CHECK(fits, op, "sizes agree from the last axis on, or are 1",
             "{} {} does not broadcast to {}", name, describe(t), shape);
  return expand(t, shape);
}

// ---- A loss of terms ----

namespace {

/// Returns sum and weight, and notes for the host that the weight comes from these factors.
Loss counted(const Tensor& sum, const Tensor& weight, const Tensor& factors, std::int64_t terms) {
  LossCount count;
  count.factors = factors;
  count.factors_version = factors.storage()->version();
  count.terms = terms;
  return {sum, weight, false, count};
}

}  // namespace

Loss LossTerms::loss() const {
  constexpr const char* kOp = "LossTerms::loss";
  require_floating(kOp, terms);
  if (weights.defined()) {
    FIRN_CHECK(weights.shape() == terms.shape(), kOp, "one weight for each term",
               "weights {} for terms {}", describe(weights), describe(terms));
    return counted(firn::sum(terms), firn::sum(weights), weights, terms.numel());
  }
  const auto count = static_cast<double>(terms.numel());
  return {
      firn::sum(terms), full({}, count, terms.dtype(), terms.device()), false, {.number = count}};
}

Loss LossTerms::loss(const Tensor& factors) const {
  constexpr const char* kOp = "LossTerms::loss";
  require_floating(kOp, terms);
  require_defined(kOp, factors);
  FIRN_CHECK((is_floating(factors.dtype()) || factors.dtype() == DType::boolean) &&
                 factors.device() == terms.device(),
             kOp, "factors are floating, or a mask of bools, on the terms' device",
             "factors {} for terms {}", describe(factors), describe(terms));
  const Tensor f = spread(kOp, "factors", cast(factors.detach(), terms.dtype()), terms.shape());
  const Loss all{firn::sum(where(ne(f, 0), mul(terms, f), 0)), firn::sum(f)};
  if (!weights.defined()) return counted(all.sum, all.weight, factors, terms.numel());
  FIRN_CHECK(weights.shape() == terms.shape(), kOp, "one weight for each term",
             "weights {} for terms {}", describe(weights), describe(terms));
  return {all.sum, firn::sum(mul(weights, f))};
}

// ---- Pairs of elements ----

LossTerms mse_terms(const Tensor& prediction, const Tensor& target) {
  require_pair("mse_terms", prediction, target);
  return {pair_terms(BinaryOp::squared_error, prediction, target)};
}

LossTerms l1_terms(const Tensor& prediction, const Tensor& target) {
  require_pair("l1_terms", prediction, target);
  return {pair_terms(BinaryOp::absolute_error, prediction, target)};
}

LossTerms huber_terms(const Tensor& prediction, const Tensor& target, double delta) {
  require_pair("huber_terms", prediction, target);
  require_number("huber_terms", "delta", delta, 0, true, "delta is a positive distance");
  ops::require_seen("huber_terms", "delta", delta, prediction.dtype());
  return {pair_terms(BinaryOp::huber, prediction, target, {delta})};
}

LossTerms kl_div_terms(const Tensor& log_probabilities, const Tensor& target) {
  require_pair("kl_div_terms", log_probabilities, target);
  const Tensor elements = pair_terms(BinaryOp::kl_div, log_probabilities, target);
  return {elements.rank() == 0 ? elements : firn::sum(elements, -1)};
}

LossTerms smooth_l1_terms(const Tensor& prediction, const Tensor& target, double beta) {
  require_pair("smooth_l1", prediction, target);
  require_number("smooth_l1", "beta", beta, 0, false, "beta is a distance; 0 is l1_loss");
  ops::require_seen("smooth_l1", "beta", beta, prediction.dtype());
  if (beta == 0) return {pair_terms(BinaryOp::absolute_error, prediction, target)};
  return {div(pair_terms(BinaryOp::huber, prediction, target, {beta}), beta)};
}
Loss smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta) {
  return smooth_l1_terms(prediction, target, beta).loss();
}

LossTerms bce_with_logits_terms(const Tensor& logits, const Tensor& target,
                                const BceOptions& options) {
  constexpr const char* kOp = "bce_with_logits";
  require_pair(kOp, logits, target);
  if (!options.pos_weight.defined()) return {pair_terms(BinaryOp::bce_with_logits, logits, target)};
  FIRN_CHECK(
      is_floating(options.pos_weight.dtype()) && options.pos_weight.device() == logits.device(),
      kOp, "a floating one on the logits' device", "pos_weight {} for {}",
      describe(options.pos_weight), describe(logits));
  const Tensor x = wide(logits), y = wide(target);
  const Tensor w = spread(kOp, "pos_weight", cast(options.pos_weight, x.dtype()), x.shape());
  return {(1 - y) * x + (1 + (w - 1) * y) * softplus(-x)};
}
Loss bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options) {
  if (!options.pos_weight.defined()) return bce_with_logits(logits, target);
  return bce_with_logits_terms(logits, target, options).loss();
}

LossTerms bce_terms(const Tensor& probabilities, const Tensor& target) {
  require_pair("bce", probabilities, target);
  return {pair_terms(BinaryOp::bce, probabilities, target)};
}
Loss bce_loss(const Tensor& probabilities, const Tensor& target) {
  return bce_terms(probabilities, target).loss();
}

LossTerms focal_terms(const Tensor& logits, const Tensor& target, const FocalOptions& options) {
  constexpr const char* kOp = "focal";
  require_pair(kOp, logits, target);
  require_number(kOp, "gamma", options.gamma, 0, false, "2 is usual");
  const Tensor y = wide(target), x = wide(logits);
  Tensor terms = pair_terms(BinaryOp::bce_with_logits, logits, target);
  if (options.gamma > 0) {
    // 1 - p_t without cancellation, and above 0: powers below 1 have a derivative there too.
    const Tensor rest = sigmoid(x) * (1 - y) + sigmoid(-x) * y;
    const double least = x.dtype() == f64 ? 0x1p-1000 : 0x1p-120;
    terms = terms * pow(clamp(rest, least, HUGE_VAL), options.gamma);
  }
  if (!options.alpha) return {terms};
  const double alpha = *options.alpha;
  FIRN_CHECK(alpha >= 0 && alpha <= 1, kOp, "0.25 is usual, std::nullopt weighs all alike",
             "alpha is {}, not in [0, 1]", alpha);
  return {terms * ((1 - alpha) + (2 * alpha - 1) * y)};
}
Loss focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options) {
  return focal_terms(logits, target, options).loss();
}

// ---- Margins ----

namespace {

/// max(0, x) with derivative 0 at 0, as PyTorch's losses have it.
Tensor above_zero(const Tensor& x) { return clamp(x, 0, std::numeric_limits<double>::infinity()); }

void require_margin(const char* op, double margin) {
  FIRN_CHECK(std::isfinite(margin), op, "a margin is a finite number", "margin is {}", margin);
}

}  // namespace

LossTerms soft_margin_terms(const Tensor& scores, const Tensor& target) {
  require_pair("soft_margin", scores, target);
  return {softplus(-(wide(target) * wide(scores)))};
}
Loss soft_margin_loss(const Tensor& scores, const Tensor& target) {
  return soft_margin_terms(scores, target).loss();
}

LossTerms hinge_terms(const Tensor& scores, const Tensor& target, double margin) {
  require_pair("hinge", scores, target);
  require_margin("hinge", margin);
  return {above_zero(margin - wide(target) * wide(scores))};
}
Loss hinge_loss(const Tensor& scores, const Tensor& target, double margin) {
  return hinge_terms(scores, target, margin).loss();
}

LossTerms hinge_embedding_terms(const Tensor& distances, const Tensor& target, double margin) {
  require_pair("hinge_embedding", distances, target);
  require_margin("hinge_embedding", margin);
  const Tensor x = wide(distances);
  return {where(ne(target, 1), above_zero(margin - x), 0) + where(ne(target, -1), x, 0)};
}
Loss hinge_embedding_loss(const Tensor& distances, const Tensor& target, double margin) {
  return hinge_embedding_terms(distances, target, margin).loss();
}

LossTerms margin_ranking_terms(const Tensor& a, const Tensor& b, const Tensor& target,
                               double margin) {
  require_pair("margin_ranking", a, b);
  require_pair("margin_ranking", a, target);
  require_margin("margin_ranking", margin);
  return {above_zero(margin - wide(target) * (wide(a) - wide(b)))};
}
Loss margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin) {
  return margin_ranking_terms(a, b, target, margin).loss();
}

}  // namespace firn
