// What the losses over classes share: the checks of targets and weights, and their form for the
// kernels.
#pragma once

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

/// Throws Error unless the target holds class numbers and the options fit it. The caller has
/// checked the target's shape. `scores` are the logits, or what they are computed from.
ClassOperands class_operands(const char* op, const Tensor& scores, std::int64_t classes,
                             const Tensor& target, const CrossEntropyOptions& options,
                             bool log_input);

/// The denominator of a loss over classes, as the host knows it.
LossCount class_count(const Tensor& target, const CrossEntropyOptions& options);

/// A row-major view with one axis.
template <class V>
V flat(V v) {
  v.shape = {v.numel()};
  v.strides = {1};
  return v;
}

}  // namespace firn::ops
