// Losses. Each returns its sum and its own denominator, so that accumulation over micro-batches of
// any size is exact and user code never divides by N.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "firn/tensor.h"

namespace firn {

/// Facts about a loss's weight that the host knows without waiting for the device. The losses below
/// fill it in; it tells whether two losses have the same denominator.
struct LossCount {
  std::optional<double> number;   ///< the weight, if shapes alone fix it
  Tensor target = {};             ///< else the class numbers that the device counts
  Tensor class_weights = {};      ///< weights of these classes, or undefined
  Tensor row_weights = {};        ///< weights of the rows, or undefined
  std::int64_t ignore_index = 0;  ///< targets that do not count
  Tensor factors = {};            ///< else the factors, or weights, of the terms
  std::int64_t terms = 0;         ///< number of terms (LossTerms)
  /// Versions of these tensors (counts of in-place writes) when they were counted.
  std::int64_t target_version = 0, class_weights_version = 0, row_weights_version = 0;
  std::int64_t factors_version = 0;  ///< version of `factors`
};

/// A loss over a batch: value = sum / weight. Both are scalars on the device, f32 (f64 for f64
/// inputs); only `sum` carries a gradient.
struct Loss {
  Tensor sum;     ///< sum over the samples
  Tensor weight;  ///< number of samples or tokens that counted, or the sum of their class weights
  /// True if a sample's term depends on the other samples of the batch, as with in-batch negatives.
  /// Such a loss is not the sum of its micro-batches' losses: Optimizer::backward refuses to
  /// accumulate it, Optimizer::step_two_pass computes it correctly (S20).
  bool coupled = false;
  LossCount count = {};  ///< facts about the weight, if it is a number of targets

  /// Returns sum / weight as a tensor with a gradient.
  Tensor mean() const;
  /// Returns the mean as a number (0 if the weight is 0); waits for the device.
  double item() const;
  /// Returns this sum with the weight of `other`. For example, `kl + bce.per(kl)` counts a loss per
  /// pixel as one per image.
  Loss per(const Loss& other) const;
  /// Returns this mean with the weight of `other`: the sum becomes mean() times that weight. It
  /// adds losses by their means, as other frameworks do: `cross_entropy(y, t) + 0.1 * mse_loss(r,
  /// x).mean_per(...)`. Over several micro-batches this is exact if the two weights keep their
  /// ratio. Otherwise each micro-batch's mean is weighted by its weight of `other`.
  Loss mean_per(const Loss& other) const;
  /// Back-propagates the mean. With an optimizer, use Optimizer::backward(loss) instead.
  void backward() const;
};
/// The sum times `factor`; the weight stays.
Loss operator*(double factor, const Loss& loss);
inline Loss operator*(const Loss& loss, double factor) { return factor * loss; }
/// The sum divided by `divisor`; the weight stays.
inline Loss operator/(const Loss& loss, double divisor) { return (1 / divisor) * loss; }
inline Loss operator-(const Loss& loss) { return -1 * loss; }
/// Adds the sums of two losses that share a denominator. They share one if they have the same
/// weight tensor, if shapes fix both to the same number, or if both count the same class numbers in
/// the same way. Throws Error if they do not: choose the denominator with per() or mean_per().
Loss operator+(const Loss& a, const Loss& b);
inline Loss operator-(const Loss& a, const Loss& b) { return a + -b; }
/// Works as a = a + b.
inline Loss& operator+=(Loss& a, const Loss& b) { return a = a + b; }
/// Prints the mean.
std::ostream& operator<<(std::ostream& out, const Loss& loss);

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this target are left out
  double label_smoothing = 0;  ///< in [0, 1): weight of the uniform distribution in the target
  Tensor class_weights = {};   ///< [classes] or undefined
  /// The axis of the classes; the last one if unset. For [n, C, h, w] give 1.
  std::optional<std::int64_t> axis = std::nullopt;
  /// A weight u for each row, of the target's shape and floating, or undefined. It multiplies the
  /// row's term and what the row adds to the denominator. A row of weight 0 is left out: its logits
  /// are not read, so they may be NaN.
  Tensor row_weights = {};
  /// z: adds z (log sum_c e^x[c])^2 to the term of each row that is not left out, which keeps
  /// logits from drifting (the z-loss of PaLM, Chowdhery et al. 2022, section 5, with z = 1e-4).
  /// Row weights multiply it, class weights do not. Finite, and 0 (off) for nll_loss.
  double z_loss = 0;
};
/// A floating target of logits' shape holds probabilities. The sum over rows is then of u sum_c
/// -w[c] t[c] log p[c], which has a gradient for the target too; the weight is the number of rows,
/// or the sum of u. It is made of tensor operations. Smoothing and z act as below. Give `axis` for
/// three axes or more, and no ignore_index.
///
/// Otherwise logits [..., C] are floating, and target [...] is i64/i32/u8 in [0, C) or
/// ignore_index, with the shape of the logits without the axis of the classes. Throws if `axis` is
/// unset and the target's shape fits axis 1 as well as the last one. Sum over rows of u (w[t]
/// ((1-s) -log p[t]) + s/C sum_c w[c] -log p[c] + z (log sum_c e^x[c])^2); weight: sum of u w[t].
/// Class and row weights (w and u, 1 if undefined) are constants: they take no gradient. Softmax,
/// logarithm and sums run in f32 (f64 for f64), in one pass forward and one backward. Throws on a
/// bad target.
Loss cross_entropy(const Tensor& logits, const Tensor& target,
                   const CrossEntropyOptions& options = {});
/// Cross-entropy of log-probabilities: sum of -u w[t] logp[t].
Loss nll_loss(const Tensor& log_probabilities, const Tensor& target,
              const CrossEntropyOptions& options = {});

/// Options for the logits of linear_cross_entropy().
struct LinearCrossEntropyOptions {
  Tensor bias = {};  ///< [classes] or undefined
  /// Rows and classes of the logits that exist at a time; 0: chosen by the shapes, so that logits
  /// and workspace take at most 64 MiB for rows of at most 1024 elements.
  std::int64_t chunk_rows = 0, chunk_classes = 0;
};
/// cross_entropy(linear(x, w, bias), target, options) that holds only a part of the logits at a
/// time. It is for the last layer and the loss of a language model, whose logits may need more
/// memory than the rest of the model. x is [..., d] floating, w [classes, d] and bias of the same
/// dtype (under autocast the products run in the guard's), target [...]. Backward computes the
/// logits again, so the operation takes four products where the two take three; it saves x, w and
/// two numbers a row. Logits of 16-bit operands are f32, and their gradients are rounded to 16 bits
/// for the products. Gradients of w and bias are added where they are collected, in f32 if that is
/// an optimizer's arena. Rows of x that are left out stay factors of the products: a NaN in one
/// reaches w's gradient, as it does in linear(). The classes are the last axis: options.axis stays
/// unset. Throws Error if shapes, dtypes or devices do not fit, if a chunk is negative, or on a bad
/// target.
Loss linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& target,
                          const CrossEntropyOptions& options = {},
                          const LinearCrossEntropyOptions& linear = {});

// Elementwise losses: prediction and target of one shape; the weight is the number of elements.
Loss mse_loss(const Tensor& prediction, const Tensor& target);  ///< (p - t)^2
Loss l1_loss(const Tensor& prediction, const Tensor& target);   ///< |p - t|
/// (p-t)^2/2 if |p-t| <= delta, else delta (|p-t| - delta/2) (Huber 1964).
Loss huber_loss(const Tensor& prediction, const Tensor& target, double delta = 1);
/// Binary cross-entropy on logits x with targets y in [0, 1]: max(x,0) - x y + log(1 + e^-|x|).
Loss bce_with_logits(const Tensor& logits, const Tensor& target);
/// Kullback-Leibler divergence, log-probabilities against target probabilities: t (log t - lp), 0
/// if t = 0. The weight is the number of rows (the batch mean of the definition).
Loss kl_div(const Tensor& log_probabilities, const Tensor& target);

/// Contrastive loss with in-batch negatives (InfoNCE, van den Oord et al. 2018): queries and keys
/// [n, d] of one floating dtype; row i of the queries matches row i of the keys. Cross-entropy of
/// queries keysᵀ / temperature against the diagonal; the weight is n, and the loss is coupled.
/// Throws Error unless the shapes agree, temperature > 0, and the compute dtype holds temperature
/// and 4 / temperature.
Loss info_nce(const Tensor& queries, const Tensor& keys, double temperature = 0.07);

}  // namespace firn
