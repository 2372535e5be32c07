// Common part of the losses over classes: the checks of targets and weights, and their form for the
// kernels.
#pragma once

#include "firn/ops/loss_terms.h"
#include "firn/ops/losses.h"
#include "kernels/rows.h"
#include "ops/common.h"

namespace firn::ops {

/// The options of a loss over classes without their tensors.
struct ClassTerms {
  const char* op;
  std::int64_t classes;
  std::int64_t ignore_index;
  double label_smoothing, z_loss;
  bool log_input;

  /// Either tensor may be undefined.
  kernels::CrossEntropyArgs with(const Tensor& class_weights, const Tensor& row_weights) const;
};

/// A loss's targets and options as the kernels take them.
struct ClassOperands {
  Tensor target;         ///< contiguous
  Tensor class_weights;  ///< contiguous, or undefined
  Tensor row_weights;    ///< contiguous, in the compute dtype, or undefined
  ClassTerms terms;
};

/// Returns the axis of the classes. Throws unless the target has x's shape without it. Also throws
/// if both axis 1 and the last one would do and the caller has named none.
int class_axis(const char* op, const Tensor& x, const Tensor& target,
               std::optional<std::int64_t> named);

/// Throws Error if an option is out of range, or the class weights do not fit the scores.
void check_class_options(const char* op, const Tensor& scores, std::int64_t classes,
                         const CrossEntropyOptions& options, bool log_input);
/// Throws Error unless there is one floating weight for each row.
void check_row_weights(const char* op, const Tensor& rows, const Tensor& weights);

/// True if a target holds probabilities; other targets hold class numbers.
inline bool are_probabilities(const Tensor& scores, const Tensor& target) {
  return target.defined() && is_floating(target.dtype()) && target.shape() == scores.shape();
}

/// Returns the terms of cross-entropy with probabilities as targets, one for each row.
LossTerms probability_terms(const char* op, const Tensor& scores, const Tensor& target,
                            const CrossEntropyOptions& options);

/// Throws Error unless the target holds class numbers and the options fit it. The caller has
/// checked the target's shape. `scores` are the logits, or the tensor that they are computed from.
ClassOperands class_operands(const char* op, const Tensor& scores, std::int64_t classes,
                             const Tensor& target, const CrossEntropyOptions& options,
                             bool log_input);

/// Returns the sum of such a loss in operations, whose gradients are recorded. Either weights may
/// be undefined.
Tensor composed_class_loss(const ClassTerms& terms, const Tensor& scores, const Tensor& target,
                           const Tensor& class_weights, const Tensor& row_weights);

/// Returns the denominator of a loss over classes, as the host knows it.
LossCount class_count(const Tensor& target, const CrossEntropyOptions& options);

/// A row-major view with one axis.
template <class V>
V flat(V v) {
  v.shape = {v.numel()};
  v.strides = {1};
  return v;
}

}  // namespace firn::ops
