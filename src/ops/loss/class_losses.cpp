// Losses over classes: cross-entropy of scores, and on log-probabilities.
#include <cmath>

#include "firn/ops/elementwise.h"
#include "firn/ops/reduce.h"
#include "ops/gradient/again.h"
#include "ops/loss/class_loss.h"

namespace firn {

using namespace ops;

kernels::CrossEntropyArgs ClassTerms::with(const Tensor& class_weights,
                                           const Tensor& row_weights) const {
  kernels::CrossEntropyArgs args;
  args.ignore_index = ignore_index;
  args.label_smoothing = label_smoothing;
  if (class_weights.defined()) args.class_weights = class_weights.view();
  args.log_input = log_input;
  if (row_weights.defined()) args.row_weights = row_weights.view();
  args.z_loss = z_loss;
  args.classes = classes;
  args.op = op;
  return args;
}

void ops::check_class_options(const char* op, const Tensor& scores, std::int64_t classes,
                              const CrossEntropyOptions& options, bool log_input) {
  FIRN_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1, op,
             "label_smoothing is in [0, 1)", "label_smoothing = {}", options.label_smoothing);
  const DType compute = compute_dtype(scores.dtype());
  FIRN_CHECK(std::abs(options.z_loss) <= max_of(compute), op, "1e-4 is usual, 0 is off",
             "z_loss = {} is not finite in {}", options.z_loss, compute);
  FIRN_CHECK(options.z_loss == 0 || !log_input, op, "give the logits to cross_entropy",
             "z_loss = {}, but log-probabilities have no sum that could drift", options.z_loss);
  const Tensor& w = options.class_weights;
  if (!w.defined()) return;
  const Shape all = {classes};
  FIRN_CHECK(w.shape() == all && is_floating(w.dtype()) && w.device() == scores.device(), op,
             "one floating weight per class, on the device of the logits",
             "class_weights {} for {}: expected shape {}", describe(w), describe(scores), all);
}

void ops::check_row_weights(const char* op, const Tensor& rows, const Tensor& weights) {
  FIRN_CHECK(weights.shape() == rows.shape() && is_floating(weights.dtype()) &&
                 weights.device() == rows.device(),
             op, "one floating weight per target, on the device of the logits",
             "row_weights {} for target {}", describe(weights), describe(rows));
}

ClassOperands ops::class_operands(const char* op, const Tensor& scores, std::int64_t classes,
                                  const Tensor& target, const CrossEntropyOptions& options,
                                  bool log_input) {
  FIRN_CHECK(!is_floating(target.dtype()), op, "cast it: target.to(firn::i64)",
             "class numbers are integers, target is {}", describe(target));
  require_index(op, target, true);
  FIRN_CHECK(target.device() == scores.device(), op, "target.to(x.device())",
             "devices differ: {} and target {}", describe(scores), describe(target));
  check_class_options(op, scores, classes, options, log_input);
  const DType compute = compute_dtype(scores.dtype());
  const Tensor &w = options.class_weights, &u = options.row_weights;
  if (u.defined()) check_row_weights(op, target, u);
  return {.target = contiguous(target),
          .class_weights = w.defined() ? contiguous(w.detach()) : Tensor(),
          .row_weights = u.defined() ? contiguous(cast(u.detach(), compute)) : Tensor(),
          .terms = {op, classes, options.ignore_index, options.label_smoothing, options.z_loss,
                    log_input}};
}

Tensor ops::composed_class_loss(const ClassTerms& terms, const Tensor& scores, const Tensor& target,
                                const Tensor& class_weights, const Tensor& row_weights) {
  const DType compute = compute_dtype(scores.dtype());
  const Tensor x = cast(reshape(scores, {target.numel(), terms.classes}), compute);
  const Tensor minus_log = neg(terms.log_input ? x : log_softmax(x));
  const Tensor number = cast(reshape(target, {target.numel()}), i64),
               all_counted = ne(number, double(terms.ignore_index));
  // A row of weight 0 is left out, whatever it holds.
  const Tensor counts =
      row_weights.defined()
          ? logical_and(all_counted, reshape(ne(row_weights, 0.0), all_counted.shape()))
          : all_counted;
  const Tensor cls = where(counts, number, 0.0);
  Tensor rows = squeeze(gather(minus_log, 1, unsqueeze(cls, 1)), 1);
  const Tensor weights = class_weights.defined() ? cast(class_weights, compute) : Tensor();
  if (weights.defined()) rows = mul(rows, index_select(weights, 0, cls));
  if (terms.label_smoothing > 0) {
    const Tensor all = sum(weights.defined() ? mul(minus_log, weights) : minus_log, {1});
    rows = add(mul(rows, 1 - terms.label_smoothing),
               mul(all, terms.label_smoothing / static_cast<double>(terms.classes)));
  }
  if (terms.z_loss != 0) rows = add(rows, mul(square(logsumexp(x, {1})), terms.z_loss));
  if (row_weights.defined()) rows = mul(rows, reshape(row_weights, rows.shape()));
  return sum(where(counts, rows, 0.0));
}

namespace {

Shape without(Shape shape, int axis) {
  shape.erase(axis);
  return shape;
}

}  // namespace

int ops::class_axis(const char* op, const Tensor& x, const Tensor& target,
                    std::optional<std::int64_t> named) {
  FIRN_CHECK(x.rank() > 0, op, "the last axis holds the classes", "{} has no classes", describe(x));
  const int last = x.rank() - 1;
  const int axis = named ? normalize_axis(op, *named, x.rank()) : last;
  FIRN_CHECK(x.shape()[axis] > 0, op, "the last axis holds the classes, or {.axis = ...}",
             "{} has no classes", describe(x));
  FIRN_CHECK(target.shape() != x.shape(), op,
             "class numbers are wanted: firn::argmax(target, axis) makes them of one-hot rows",
             "target {} has an axis of classes, as {} has", describe(target), describe(x));
  const auto fits = [&](int a) { return target.shape() == without(x.shape(), a); };
  if (!fits(axis) && x.rank() >= 3) {
    for (int other = 0; other <= last; ++other) {
      FIRN_CHECK(!fits(other), op,
                 fmt::format("if the classes are on axis {0}, say {{.axis = {0}}}", other),
                 "classes on axis {}: target {} for {}, expected shape {}", axis, describe(target),
                 describe(x), without(x.shape(), axis));
    }
  }
  FIRN_CHECK(fits(axis), op, "give one class number per row, without a class axis",
             "target {} for {}: expected shape {}", describe(target), describe(x),
             without(x.shape(), axis));
  const bool ambiguous = !named && x.rank() >= 3 && fits(1) && last != 1;
  FIRN_CHECK(!ambiguous, op,
             fmt::format("say {{.axis = 1}} or {{.axis = {}}} in the options", last),
             "the classes of {} may be on axis 1 or on axis {}: target {} fits both", describe(x),
             last, describe(target));
  return axis;
}

LossCount ops::class_count(const Tensor& target, const CrossEntropyOptions& options) {
  LossCount count{.number = {},
                  .target = target,
                  .class_weights = options.class_weights,
                  .row_weights = options.row_weights,
                  .ignore_index = options.ignore_index};
  const auto version = [](const Tensor& t) { return t.defined() ? t.storage()->version() : 0; };
  count.target_version = version(target);
  count.class_weights_version = version(count.class_weights);
  count.row_weights_version = version(count.row_weights);
  return count;
}

namespace {

/// A row-major view as [rows, classes].
template <class V>
V as_rows(V v) {
  const std::int64_t n = v.shape.back();
  v.shape = {v.numel() / n, n};
  v.strides = {n, 1};
  return v;
}

Loss class_loss(const char* op, const Tensor& scores, const Tensor& target,
                const CrossEntropyOptions& options, bool log_input) try {
  require_floating(op, scores);
  require_defined(op, target);
  if (are_probabilities(scores, target) && !log_input)
    return probability_terms(op, scores, target, options).loss();
  const int axis = class_axis(op, scores, target, options.axis);
  Axes order;
  for (int i = 0; i < scores.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  const Tensor x = axis == scores.rank() - 1 ? scores : permute(scores, order);
  const ClassOperands in = class_operands(op, x, x.shape().back(), target, options, log_input);

  const Tensor input = contiguous(x);
  const DType compute = compute_dtype(x.dtype());
  const Tensor sum = empty({}, compute, x.device());
  const Tensor weight = empty({}, compute, x.device());
  const Tensor stats = empty({in.target.numel(), 2}, compute, x.device());
  kernels::cross_entropy(as_rows(input.view()), flat(in.target.view()),
                         in.terms.with(in.class_weights, in.row_weights), sum.mutable_view(),
                         weight.mutable_view(), stats.mutable_view(), stream_of(x));
  const bool by_row = in.row_weights.defined();
  const Tensor recorded =
      record(op, sum, {&input},
             {Saved::input(0), Saved::other(in.target), Saved::other(stats),
              Saved::other(in.class_weights)},
             with_again(
                 [kept = in.terms, by_row](Backward& b) {
                   const auto [dx, beta] = b.sink(0);
                   kernels::cross_entropy_backward(
                       b.grad().view(), as_rows(b.saved(0).view()), flat(b.saved(1).view()),
                       b.saved(2).view(), kept.with(b.saved(3), by_row ? b.saved(4) : Tensor()),
                       as_rows(dx.mutable_view()), beta, b.pending_gradient(), b.stream());
                 },
                 [kept = in.terms, by_row](GraphBackward& b) {
                   add_composed(b, {{0, b.input(0, 0)}}, [&](const std::vector<Tensor>& t) {
                     return composed_class_loss(kept, t[0], b.saved(1), b.saved(3),
                                                by_row ? b.saved(4) : Tensor());
                   });
                 }));
  if (autograd::Node* node = autograd::node_of(recorded)) {
    if (by_row) autograd::save(recorded, {in.row_weights});
    node->takes_pending_gradient =
        x.numel() > 0;  // without elements the backward kernel does not run
  }
  return {recorded, weight, false, class_count(target, options)};
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace

Loss cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  return class_loss("cross_entropy", logits, target, options, false);
}

Loss nll_loss(const Tensor& log_probabilities, const Tensor& target,
              const CrossEntropyOptions& options) {
  return class_loss("nll_loss", log_probabilities, target, options, true);
}

}  // namespace firn
