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
/// inputs); only `sum` carries a gradient. Loss{sum, weight} makes a loss of your own; leave
/// `count` empty.
struct Loss {
  Tensor sum;  ///< sum over the samples
  /// Denominator of the mean: the number of counted elements, rows or samples, or the sum of their
  /// weights.
  Tensor weight;
  /// True if a sample's term depends on the other samples of the batch, as with in-batch negatives.
  /// Such a loss is not the sum of its micro-batches' losses (S20 in docs/semantics.md).
  /// Optimizer::backward() throws Error if it would accumulate it. step_two_pass() computes it, but
  /// throws in exact mode. Over several ranks both throw.
  bool coupled = false;
  LossCount count = {};  ///< facts about the weight, if it is a number of targets

  /// Returns sum / weight as a tensor with a gradient. Mean and gradient are 0 if the weight is 0.
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
/// Adds the sums of two losses that share a denominator. It is shared if it is one weight tensor or
/// one number fixed by shapes. The same class numbers counted in the same way, or the same factors
/// of as many terms (LossTerms), share one too. Throws Error otherwise: choose the denominator with
/// per() or mean_per().
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
  /// z: adds z (log sum_c e^x[c])^2 to the term of each row that is not left out. That keeps logits
  /// from drifting (the z-loss of PaLM, Chowdhery et al. 2022, section 5, with z = 1e-4). Row
  /// weights multiply it, class weights do not. It must be finite, and 0 (off) for nll_loss.
  double z_loss = 0;
};
/// Cross-entropy of logits x [..., C], floating, and a target t of class numbers, without the axis
/// of the classes. t is i64, i32 or u8, in [0, C) or ignore_index. Here p is the softmax of x, w
/// the class weight, u the row weight and s the smoothing. w and u are 1 if undefined, and
/// constants: they take no gradient. The sum adds up u (w[t] ((1-s) -log p[t]) + s/C sum_c w[c]
/// -log p[c] + z (log sum_c e^x[c])^2) over the rows; the weight is the sum of u w[t]. Softmax,
/// logarithm and sums run in f32 (f64 for f64), in one pass forward and one backward. Throws Error
/// on a bad target. Also throws if `axis` is unset and the target's shape fits axis 1 as well as
/// the last one.
///
/// A floating target of the logits' shape holds probabilities instead. A row then adds u (sum_c
/// -w[c] t[c] log p[c] + z (log sum_c e^x[c])^2), with smoothed t. The weight is the number of
/// rows, or the sum of u. The target gets a gradient too. This form consists of tensor operations.
/// Give `axis` for three axes or more, and no ignore_index.
Loss cross_entropy(const Tensor& logits, const Tensor& target,
                   const CrossEntropyOptions& options = {});
/// Cross-entropy of log-probabilities: sum of -u w[t] logp[t].
Loss nll_loss(const Tensor& log_probabilities, const Tensor& target,
              const CrossEntropyOptions& options = {});

/// Options for the logits of linear_cross_entropy().
struct LinearCrossEntropyOptions {
  Tensor bias = {};  ///< [classes] or undefined
  /// Rows and classes of logits that exist at a time. With 0, the shapes choose: logits and
  /// workspace take at most 64 MiB if d, the width of x, is at most 1024.
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

// Elementwise losses take floating operands of one shape and device, and give gradients to both.
// The weight is the number of elements. They throw Error if shapes or devices differ, or if only
// one is f64.
Loss mse_loss(const Tensor& prediction, const Tensor& target);  ///< (p - t)^2
Loss l1_loss(const Tensor& prediction, const Tensor& target);   ///< |p - t|
/// (p-t)^2/2 if |p-t| <= delta, else delta (|p-t| - delta/2) (Huber 1964). Throws Error unless
/// delta is finite and above 0.
Loss huber_loss(const Tensor& prediction, const Tensor& target, double delta = 1);
/// Binary cross-entropy on logits x with targets y in [0, 1]: max(x,0) - x y + log(1 + e^-|x|).
Loss bce_with_logits(const Tensor& logits, const Tensor& target);
/// Kullback-Leibler divergence, log-probabilities against target probabilities: t (log t - lp), 0
/// if t = 0. The weight is the number of rows, which lie along the last axis: n m for [n, m, c].
/// PyTorch's batchmean divides by n.
Loss kl_div(const Tensor& log_probabilities, const Tensor& target);

/// Contrastive loss with in-batch negatives (InfoNCE, van den Oord et al. 2018): queries and keys
/// [n, d] of one floating dtype; row i of the queries matches row i of the keys. Cross-entropy of
/// queries keysᵀ / temperature against the diagonal; the weight is n, and the loss is coupled.
/// Throws Error unless the shapes agree, temperature > 0, and the compute dtype holds temperature
/// and 4 / temperature.
Loss info_nce(const Tensor& queries, const Tensor& keys, double temperature = 0.07);

}  // namespace firn
