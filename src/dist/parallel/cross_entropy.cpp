// Cross-entropy of logits whose classes are sharded over ranks. With m = max x, s = sum of e^(x -
// m) and l = m + log s over all ranks, a row of target t and weights u, w adds (as cross_entropy())
//
//   u (w[t] (1-e) (l - x[t]) + e/C (W l - sum_c w[c] x[c]) + z l^2),   W = sum_c w[c],
//
// with x - m for x where l is log s. Its gradient is
// u ((w[t] (1-e) + e/C W + 2 z l) p[c] - e/C w[c] - [c = t] w[t] (1-e)).
#include <cmath>
#include <vector>

#include "autograd/node.h"
#include "base/check.h"
#include "dist/parallel/exchange.h"
#include "firn/autograd.h"
#include "firn/dist/parallel/functions.h"
#include "firn/ops/elementwise.h"
#include "firn/ops/index.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"

namespace firn::dist {
namespace {

using autograd::Backward;
using autograd::record;
using autograd::Saved;

constexpr const char* kOp = "vocab_parallel_cross_entropy";

/// Values of each row that do not depend on its logits: [rows] each.
struct Rows {
  Tensor target;  ///< i64: index among this rank's classes; 0 if this rank does not have it
  Tensor here;    ///< bool: this rank has it
  Tensor row;     ///< f32 or f64: u, 0 for a row that is left out
  Tensor term;    ///< w[t], 0 for a row that is left out
};

/// Checks targets on the CPU. A device finds a bad target as gather() does.
void check_targets(const Tensor& target, std::int64_t classes, std::int64_t ignore_index) {
  if (!target.device().is_cpu() || runtime::dry_run()) return;
  const auto* const t = target.data<std::int64_t>();
  for (std::int64_t i = 0; i < target.numel(); ++i)
    FIRN_CHECK(t[i] == ignore_index || (t[i] >= 0 && t[i] < classes), kOp,
               "targets are in [0, classes), or ignore_index",
               "target {} of row {} is outside of [0, {}) and is not ignore_index = {}", t[i], i,
               classes, ignore_index);
}

/// `target` is i64 [rows]. class_weights and row_weights have the dtype to compute in, or are
/// undefined.
Rows rows_of(const Tensor& target, const Tensor& class_weights, const Tensor& row_weights,
             DType compute, std::int64_t ignore_index, std::int64_t classes, const AxisPart& own) {
  check_targets(target, classes, ignore_index);
  Tensor counts = ne(target, static_cast<double>(ignore_index));
  const Tensor valid = where(counts, target, zeros_like(target));
  if (row_weights.defined()) counts = logical_and(counts, ne(row_weights, 0.0));
  const OwnIndices mine = own_indices(valid, own.first, own.size(), classes);
  const Tensor ones = full({target.numel()}, 1, compute, target.device());
  const Tensor w =
      class_weights.defined() ? embedding(class_weights.unsqueeze(1), valid).squeeze(1) : ones;
  return {.target = mine.at,
          .here = logical_and(mine.here, counts),
          .row = where(counts, row_weights.defined() ? row_weights : ones, 0.0),
          .term = where(counts, w, 0.0)};
}

void check_operands(const Tensor& logits, const Tensor& target, const Group& group,
                    const CrossEntropyOptions& o) {
  require_defined(kOp, logits);
  require_defined(kOp, target);
  FIRN_CHECK(is_floating(logits.dtype()) && logits.rank() > 0 && logits.shape().back() > 0, kOp,
             "the last axis holds this rank's classes", "{} are no logits", describe(logits));
  require_there(kOp, logits, group);
  FIRN_CHECK(target.device() == logits.device(), kOp, "move the target there",
             "{} and target {} are on two devices", describe(logits), describe(target));
  FIRN_CHECK(!o.axis || *o.axis == -1 || *o.axis == logits.rank() - 1, kOp,
             "permute() the classes to the end", "axis = {}, and ranks shard the last axis",
             *o.axis);
  Shape expected = logits.shape();
  expected.erase(logits.rank() - 1);
  FIRN_CHECK(!is_floating(target.dtype()) && target.dtype() != DType::boolean &&
                 target.shape() == expected,
             kOp, "give one class number per row", "target {} for {}: expected integers {}",
             describe(target), describe(logits), expected);
  FIRN_CHECK(o.label_smoothing >= 0 && o.label_smoothing < 1, kOp, "label_smoothing is in [0, 1)",
             "label_smoothing = {}", o.label_smoothing);
  FIRN_CHECK(std::abs(o.z_loss) <= max_of(compute_dtype(logits.dtype())), kOp,
             "1e-4 is usual, 0 is off", "z_loss = {} is not finite", o.z_loss);
  const Shape all = {logits.shape().back() * group.size()};
  const Tensor &w = o.class_weights, &u = o.row_weights;
  FIRN_CHECK(
      !w.defined() || (w.shape() == all && is_floating(w.dtype()) && w.device() == logits.device()),
      kOp, "give one floating weight per class, of all classes",
      "class_weights {} for {} on each of {} ranks: expected shape {}", describe(w),
      describe(logits), group.size(), all);
  FIRN_CHECK(!u.defined() || (u.shape() == target.shape() && is_floating(u.dtype()) &&
                              u.device() == logits.device()),
             kOp, "give one floating weight per target", "row_weights {} for target {}",
             describe(u), describe(target));
}

LossCount count_of(const Tensor& target, const CrossEntropyOptions& o) {
  const auto version = [](const Tensor& t) { return t.defined() ? t.storage()->version() : 0; };
  LossCount out{.number = {},
                .target = target,
                .class_weights = o.class_weights,
                .row_weights = o.row_weights,
                .ignore_index = o.ignore_index};
  out.target_version = version(target);
  out.class_weights_version = version(o.class_weights);
  out.row_weights_version = version(o.row_weights);
  return out;
}

}  // namespace

Loss vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target, const Group& group,
                                  const CrossEntropyOptions& options) try {
  check_operands(logits, target, group, options);
  const std::int64_t n = logits.shape().back(), classes = n * group.size();
  const std::int64_t count = target.numel();
  const AxisPart own{n * group.rank(), n * (group.rank() + 1)};
  const DType compute = compute_dtype(logits.dtype());
  const double smooth = options.label_smoothing, share = smooth / static_cast<double>(classes);
  const double z = options.z_loss;

  Tensor sum, weight, most, log_sum, class_part;
  Tensor all_weights;  // W e/C, [1]: smoothing adds it to each row's weight
  Rows rows;
  {
    const NoGrad guard;
    const auto in_compute = [&](const Tensor& t) {
      return t.defined() ? cast(t.detach(), compute).contiguous() : Tensor();
    };
    const Tensor class_weights = in_compute(options.class_weights);
    const Tensor row_weights = in_compute(options.row_weights);
    rows = rows_of(cast(target, DType::i64).contiguous().reshape({count}), class_weights,
                   row_weights.defined() ? row_weights.reshape({count}) : row_weights, compute,
                   options.ignore_index, classes, own);
    if (class_weights.defined()) class_part = class_weights.slice(0, own.first, own.last).clone();
    if (smooth > 0)
      all_weights = class_weights.defined()
                        ? cast(share * cast(class_weights, DType::f64).sum({0}, true), compute)
                        : full({1}, smooth, compute, logits.device());
    const Tensor x = cast(logits.detach(), compute).contiguous().reshape({count, n});
    most = x.max({1}, true).contiguous();
    group.all_reduce(most, Reduce::max);
    // x - m takes the place of x, so that large logits lose nothing. One exchange has all sums: of
    // e^(x - m), of the target's logit, and of logits.
    const Tensor sums = zeros({smooth > 0 ? 3 : 2, count}, compute, logits.device());
    const Tensor shifted = x - most;
    sums[0].copy_(exp(shifted).sum({1}));
    const Tensor taken = gather(shifted, 1, rows.target.unsqueeze(1)).squeeze(1);
    sums[1].copy_(where(rows.here, taken, 0.0));
    if (smooth > 0) sums[2].copy_((class_part.defined() ? shifted * class_part : shifted).sum({1}));
    group.all_reduce(sums);
    log_sum = log(sums[0]);
    Tensor term = (1 - smooth) * rows.term * (log_sum - sums[1]);
    if (smooth > 0) term = term + (all_weights * log_sum - share * sums[2]);
    if (z != 0) term = term + z * square(most.reshape({count}) + log_sum);
    const auto total = [&](const Tensor& t) { return cast(cast(t, DType::f64).sum(), compute); };
    sum = total(where(gt(abs(rows.row), 0.0), rows.row * term, 0.0));
    weight = total(rows.row * rows.term);
  }
  const Tensor recorded = record(
      kOp, sum, {&logits},
      {Saved::input(0), Saved::other(log_sum), Saved::other(rows.target), Saved::other(rows.row),
       Saved::other(rows.term), Saved::other(rows.here), Saved::other(most)},
      [=](Backward& b) {
        const Tensor x = cast(b.saved(0), compute).contiguous().reshape({count, n});
        const Tensor &log_s = b.saved(1), &row = b.saved(3), &m = b.saved(6);
        const Tensor seeded = row * cast(b.grad(), compute);
        const Tensor at = (1 - smooth) * seeded * b.saved(4);
        Tensor factor = smooth > 0 ? at + all_weights * seeded : at;
        if (z != 0) factor = factor + 2 * z * seeded * (m.reshape({count}) + log_s);
        Tensor grad = exp(x - m - log_s.unsqueeze(1)) * factor.unsqueeze(1);
        if (smooth > 0) {
          const Tensor each = share * seeded.unsqueeze(1);
          grad = grad - (class_part.defined() ? each * class_part : each);
        }
        const Tensor taken = where(b.saved(5), -at, 0.0);
        grad = scatter_add(grad, 1, b.saved(2).unsqueeze(1), taken.unsqueeze(1));
        // A row that is left out may hold NaN, which a weight of 0 would keep.
        grad = where(gt(abs(row), 0.0).unsqueeze(1), grad, 0.0);
        b.accumulate(0, cast(grad, b.input_dtype(0)).reshape(b.input_shape(0)));
      });
  return {.sum = recorded, .weight = weight, .count = count_of(target, options)};
}
FIRN_OUT_OF_MEMORY("vocab_parallel_cross_entropy")

}  // namespace firn::dist
