// Losses over classes term by term, and with probabilities as targets: tensor operations in the
// compute dtype, where class_losses.cpp has one kernel for the sum.
#include <cmath>

#include "firn/ops/elementwise.h"
#include "ops/loss/class_loss.h"
#include "ops/loss/loss_terms.h"

namespace firn {

using namespace ops;

namespace {

/// The scores with their classes on the last axis, in the compute dtype.
Tensor classes_last(const Tensor& scores, int axis) {
  const Tensor x = wide(scores);
  Axes order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return axis + 1 == x.rank() ? x : permute(x, order);
}

/// log sum e^x over the last axis.
Tensor log_sum_exp(const Tensor& x) {
  const Tensor most = max(x.detach(), -1, true);
  return squeeze(log(sum(exp(x - most), -1, true)) + most, -1);
}

LossTerms class_terms(const char* op, const Tensor& scores, const Tensor& target,
                      const CrossEntropyOptions& options, bool log_input) {
  require_floating(op, scores);
  require_defined(op, target);
  const int axis = class_axis(op, scores, target, options.axis);
  const Tensor x = classes_last(scores, axis);
  const std::int64_t classes = x.size(-1);
  const ClassOperands in = class_operands(op, x, classes, target, options, log_input);

  Tensor counted = ne(in.target, static_cast<double>(options.ignore_index));
  if (in.row_weights.defined()) counted = logical_and(counted, ne(in.row_weights, 0));
  const Tensor scores_read = where(unsqueeze(counted, -1), x, 0);
  const Tensor log_p = log_input ? scores_read : log_softmax(scores_read);
  const Tensor number = where(counted, cast(in.target, i64), 0);
  const auto at_target = [&](const Tensor& t) {
    return squeeze(gather(t, -1, unsqueeze(number, -1)), -1);
  };
  const Tensor own = at_target(log_p);

  const double smooth = options.label_smoothing;
  Tensor terms = -own, weights = cast(counted, x.dtype());
  if (in.class_weights.defined()) {
    const Tensor w = cast(in.class_weights, x.dtype());
    const Tensor own_weight = reshape(index_select(w, 0, flatten(number)), number.shape());
    terms = terms * own_weight;
    weights = weights * own_weight;
    if (smooth > 0)
      terms = (1 - smooth) * terms - sum(log_p * w, -1) * (smooth / static_cast<double>(classes));
  } else if (smooth > 0) {
    terms = (1 - smooth) * terms - sum(log_p, -1) * (smooth / static_cast<double>(classes));
  }
  if (options.z_loss != 0) terms = terms + options.z_loss * square(log_sum_exp(scores_read));
  if (in.row_weights.defined()) {
    terms = terms * in.row_weights;
    weights = weights * in.row_weights;
  }
  return {where(counted, terms, 0), weights};
}

}  // namespace

LossTerms ops::probability_terms(const char* op, const Tensor& scores, const Tensor& target,
                                 const CrossEntropyOptions& options) {
  require_pair(op, scores, target);
  FIRN_CHECK(scores.rank() > 0, op, "the last axis holds the classes", "{} has no classes",
             describe(scores));
  FIRN_CHECK(options.axis || scores.rank() < 3, op,
             "say {.axis = 1}, as PyTorch has it, or {.axis = -1}",
             "the classes of {} may be on any axis", describe(scores));
  FIRN_CHECK(options.ignore_index == CrossEntropyOptions{}.ignore_index, op,
             "give row_weights of 0", "ignore_index = {}, but the target holds probabilities: {}",
             options.ignore_index, describe(target));
  const int axis = normalize_axis(op, options.axis.value_or(-1), scores.rank());
  const Tensor x = classes_last(scores, axis);
  const std::int64_t classes = x.size(-1);
  FIRN_CHECK(classes > 0, op, "the last axis holds the classes, or {.axis = ...}",
             "{} has no classes", describe(scores));
  check_class_options(op, x, classes, options, false);

  Tensor t = classes_last(target, axis);
  if (options.label_smoothing > 0)
    t = (1 - options.label_smoothing) * t + options.label_smoothing / static_cast<double>(classes);
  if (options.class_weights.defined()) t = t * cast(options.class_weights.detach(), x.dtype());
  // Rows of weight 0 are not read. A class of probability 0 in prediction and target costs 0.
  Tensor u, read = x;
  if (options.row_weights.defined()) {
    check_row_weights(op, select(x, -1, 0), options.row_weights);
    u = cast(options.row_weights.detach(), x.dtype());
    read = where(unsqueeze(ne(u, 0), -1), x, 0);
  }
  const Tensor log_p = log_softmax(read);
  const Tensor idle = logical_and(eq(t, 0), eq(log_p, -HUGE_VAL));
  Tensor terms = -sum(t * where(idle, 0, log_p), -1);
  if (options.z_loss != 0) terms = terms + options.z_loss * square(log_sum_exp(read));
  if (!u.defined()) return {terms};
  return {where(ne(u, 0), terms * u, 0), u};
}

LossTerms cross_entropy_terms(const Tensor& logits, const Tensor& target,
                              const CrossEntropyOptions& options) {
  constexpr const char* kOp = "cross_entropy_terms";
  return are_probabilities(logits, target) ? probability_terms(kOp, logits, target, options)
                                           : class_terms(kOp, logits, target, options, false);
}

LossTerms nll_terms(const Tensor& log_probabilities, const Tensor& target,
                    const CrossEntropyOptions& options) {
  return class_terms("nll_terms", log_probabilities, target, options, true);
}

}  // namespace firn
