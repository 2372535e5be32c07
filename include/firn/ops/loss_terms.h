// Losses term by term, for weights and masks of your own, and the losses that firn/ops/losses.h
// leaves out. X_terms(...) gives the terms that X_loss(...) adds up: PyTorch's reduction="none".
//
// Terms are computed in f32, or f64 for f64 operands. Unless a function says otherwise, operands
// are floating, of one shape and device. A function throws Error if shapes, dtypes or devices do
// not fit, or if an option is out of range.
#pragma once

#include <concepts>
#include <optional>

#include "firn/ops/losses.h"
#include "firn/tensor.h"

namespace firn {

/// A loss before its terms are added up.
struct LossTerms {
  Tensor terms;         ///< one for each element, row or sample; carries the gradient
  Tensor weights = {};  ///< share of each in the denominator, of terms' shape; undefined: 1 each

  /// Returns the sum of the terms, and of their weights.
  Loss loss() const;
  /// Returns loss() with each term, and its share of the denominator, multiplied by a factor. The
  /// factors are floating or bool (a mask), of a shape that broadcasts to the terms', and take no
  /// gradient. The sum leaves out a term of factor 0, even if it is infinite or NaN. backward()
  /// still multiplies its derivative by 0, so replace a NaN by where(mask, x, 0) before the loss.
  Loss loss(const Tensor& factors) const;
};

// ---- The losses of losses.h ----
/// mse_terms(), l1_terms() and huber_terms(): the terms of mse_loss() and so on, of the operands'
/// shape.
LossTerms mse_terms(const Tensor& prediction, const Tensor& target);
LossTerms l1_terms(const Tensor& prediction, const Tensor& target);
LossTerms huber_terms(const Tensor& prediction, const Tensor& target, double delta = 1);
/// The terms of kl_div(): each row's sum over the last axis, which the terms do not have.
LossTerms kl_div_terms(const Tensor& log_probabilities, const Tensor& target);
/// The terms of cross_entropy() and nll_loss(), of the target's shape. A row adds its row weight
/// times the weight of its class to the denominator, or 0 if it is left out. The terms hold the row
/// weights too.
LossTerms cross_entropy_terms(const Tensor& logits, const Tensor& target,
                              const CrossEntropyOptions& options = {});
LossTerms nll_terms(const Tensor& log_probabilities, const Tensor& target,
                    const CrossEntropyOptions& options = {});

struct BceOptions {
  /// Factor of the term of targets 1, floating and of a shape that broadcasts to the logits'; or
  /// undefined: 1. Above 1 it favours recall.
  Tensor pos_weight = {};
};
/// (1 - y) x + (1 + (pos_weight - 1) y) log(1 + e^-x) of logits x and targets y in [0, 1]. The
/// denominator is the number of elements, whatever pos_weight is, as in PyTorch.
LossTerms bce_with_logits_terms(const Tensor& logits, const Tensor& target,
                                const BceOptions& options = {});
/// The sum of these terms.
Loss bce_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options);

// ---- Pairs of elements ----
/// (p - t)^2 / (2 beta) if |p - t| < beta, else |p - t| - beta/2 (Girshick 2015). beta is 0 or
/// more; 0 is l1_loss.
LossTerms smooth_l1_terms(const Tensor& prediction, const Tensor& target, double beta = 1);
/// The sum of these terms.
Loss smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta = 1);
Loss smooth_l1_loss(const Tensor&,  // (prediction, target, beta): it has no size_average
                    const Tensor&, std::same_as<bool> auto) = delete;
/// Binary cross-entropy of probabilities p, targets y in [0, 1]: -y log p - (1 - y) log(1 - p),
/// with logarithms of at least -100. Prefer bce_with_logits(), which is exact for small
/// probabilities. A p outside [0, 1] gives NaN.
LossTerms bce_terms(const Tensor& probabilities, const Tensor& target);
/// The sum of these terms.
Loss bce_loss(const Tensor& probabilities, const Tensor& target);

struct FocalOptions {
  double gamma = 2;  ///< exponent of 1 - p_t, 0 or more; 0 is cross-entropy
  /// Weight of targets 1, in [0, 1]; targets 0 weigh 1 - alpha. nullopt: all weigh 1.
  std::optional<double> alpha = 0.25;
};
/// alpha_t (1 - p_t)^gamma bce of logits and targets in [0, 1], with p = sigmoid(logit) and p_t = p
/// y + (1 - p) (1 - y) (Lin et al. 2017; torchvision's sigmoid_focal_loss). The denominator is the
/// number of elements. Use Loss::per() to divide by the number of positive targets, as the paper
/// does.
LossTerms focal_terms(const Tensor& logits, const Tensor& target, const FocalOptions& options = {});
/// The sum of these terms.
Loss focal_loss(const Tensor& logits, const Tensor& target, const FocalOptions& options = {});

/// log(1 + e^(-y x)) of scores x and classes y, 1 or -1.
LossTerms soft_margin_terms(const Tensor& scores, const Tensor& target);
/// The sum of these terms.
Loss soft_margin_loss(const Tensor& scores, const Tensor& target);
/// max(0, margin - y x) of scores x and classes y, 1 or -1: the loss of a support vector machine.
LossTerms hinge_terms(const Tensor& scores, const Tensor& target, double margin = 1);
/// The sum of these terms.
Loss hinge_loss(const Tensor& scores, const Tensor& target, double margin = 1);
/// x if y = 1, max(0, margin - x) if y = -1, of distances x.
LossTerms hinge_embedding_terms(const Tensor& distances, const Tensor& target, double margin = 1);
/// The sum of these terms.
Loss hinge_embedding_loss(const Tensor& distances, const Tensor& target, double margin = 1);
/// max(0, margin - y (a - b)): y = 1 asks for a above b, y = -1 below. The three have one shape.
LossTerms margin_ranking_terms(const Tensor& a, const Tensor& b, const Tensor& target,
                               double margin = 0);
/// The sum of these terms.
Loss margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin = 0);

// ---- Negative log-likelihoods ----
struct PoissonNllOptions {
  bool log_input = true;  ///< the input is the logarithm of the rate, not the rate
  bool full = false;      ///< adds Stirling's t log t - t + log(2 pi t)/2 for targets t above 1
  double eps = 1e-8;      ///< added to a rate before its logarithm, more than 0
};
/// e^x - t x, or without log_input x - t log(x + eps), of counts t.
LossTerms poisson_nll_terms(const Tensor& input, const Tensor& target,
                            const PoissonNllOptions& options = {});
/// The sum of these terms.
Loss poisson_nll_loss(const Tensor& input, const Tensor& target,
                      const PoissonNllOptions& options = {});

struct GaussianNllOptions {
  bool full = false;  ///< adds log(2 pi)/2
  double eps = 1e-6;  ///< the least variance, more than 0
};
/// (log v + (m - t)^2 / v) / 2 of means m, targets t and variances v. The variances have the means'
/// shape, or size 1 or no axis in place of the last. Below eps a variance counts as eps, but has
/// the gradient of the unclamped value.
LossTerms gaussian_nll_terms(const Tensor& mean, const Tensor& target, const Tensor& variance,
                             const GaussianNllOptions& options = {});
/// The sum of these terms.
Loss gaussian_nll_loss(const Tensor& mean, const Tensor& target, const Tensor& variance,
                       const GaussianNllOptions& options = {});

// ---- Rows: embeddings [..., d] ----
/// 1 - cos(a, b) for rows of target 1, max(0, cos(a, b) - margin) for those of -1, 0 for others.
/// Squared norms have 1e-12 added, as PyTorch's. The target, of any dtype, has the operands' shape
/// without the last axis.
LossTerms cosine_embedding_terms(const Tensor& a, const Tensor& b, const Tensor& target,
                                 double margin = 0);
/// The sum of these terms.
Loss cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           double margin = 0);

struct TripletMarginOptions {
  double margin = 1;  ///< distance by which the negative is to be further away, more than 0
  double p = 2;       ///< order of the norm of differences, more than 0; infinity: the largest
  double eps = 1e-6;  ///< added to differences, 0 or more
  bool swap = false;  ///< the negative's distance is the smaller of those from anchor and positive
};
/// max(0, |anchor - positive| - |anchor - negative| + margin), one for each row.
LossTerms triplet_margin_terms(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                               const TripletMarginOptions& options = {});
/// The sum of these terms.
Loss triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                         const TripletMarginOptions& options = {});

// ---- Samples ----
/// 1 - (2 sum(p y) + smooth) / (sum(p) + sum(y) + smooth), sums over all axes but the first, of
/// probabilities and targets [n, ...] (Milletari et al. 2016, without squares). smooth is 0 or
/// more.
LossTerms dice_terms(const Tensor& probabilities, const Tensor& target, double smooth = 1);
/// The sum of these terms.
Loss dice_loss(const Tensor& probabilities, const Tensor& target, double smooth = 1);

// ---- Sequences ----
struct CtcOptions {
  std::int64_t blank = 0;      ///< the class that stands for no label, in [0, classes)
  bool zero_infinity = false;  ///< terms that are infinite, and their gradients, are 0
};
/// Connectionist temporal classification (Graves et al. 2006): -log of the probability that the
/// steps of a sequence spell its target. Steps spell a target if it is what is left of them after
/// repeated classes are merged and blanks removed. One term for each sequence: [n], or [] without a
/// batch.
///
/// log_probs [steps, n, classes], or [steps, classes] without a batch: the result of log_softmax().
/// targets, i64 or i32: [n, longest], whose padding may hold anything, or all sequences in one row,
/// one after the other. input_lengths and target_lengths, [n], or [] without a batch, i64 or i32:
/// the steps and labels of each sequence. Labels are classes other than the blank. A target with
/// more labels, or labels and repetitions, than steps has the term infinity, and NaN as gradient.
///
/// The gradient is the one of the logits under the log_softmax, e^log_probs - q (equation 16), as
/// PyTorch's: log_softmax() hands it on unchanged, since each of its rows adds up to 0. q is the
/// probability that a step stands for a class. Steps from a sequence's length on get 0. There is no
/// second derivative. alpha and beta (equations 6 to 11) are logarithms in f32 (f64 for f64);
/// autocast computes in f32.
///
/// Throws Error on a length outside of log_probs or targets, a label outside of the classes, and
/// one that is the blank; on a CUDA device at the next wait of the host.
LossTerms ctc_terms(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, const CtcOptions& options = {});
/// The sum of these terms, each divided by its target's length (at least 1), so that the mean is
/// PyTorch's default. PyTorch's reduction="sum" is ctc_terms(...).loss().sum.
Loss ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
              const Tensor& target_lengths, const CtcOptions& options = {});

}  // namespace firn
