// Losses: sum and denominator, one recorded node each. They compute in f32 and give f32 sums
// whatever 16-bit dtype they read. So autocast casts nothing here: f32 copies of 16-bit logits
// would cost memory and gain no digit.
#include "firn/losses.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/rows.h"
#include "ops/common.h"

namespace firn {
namespace {

using namespace ops;
using math::BinaryOp;

/// A row-major view with one axis.
template <class V>
V flat(V v) {
  v.shape = {v.numel()};
  v.strides = {1};
  return v;
}

// ---- Elementwise losses ----

/// Operands of one shape and device, of floating dtypes that are computed alike.
void require_pair(const char* op, const Tensor& prediction, const Tensor& target) {
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

/// The sum of op(prediction, target) over all elements. Elements and sum are in the compute dtype:
/// the square of an f16 number may be too large for f16.
Loss elementwise_loss(BinaryOp op, const Tensor& prediction, const Tensor& target, double weight,
                      math::Args args = {}) {
  const char* name = math::info(op).name;
  const DType compute = compute_dtype(prediction.dtype());
  const Stream stream = stream_of(prediction);
  const Tensor sum = empty({}, compute, prediction.device());
  {
    const OwnerScope owner(Owner::workspace);
    const Tensor elements = empty(prediction.shape(), compute, prediction.device());
    kernels::binary(op, prediction.view(), target.view(), elements.mutable_view(), args, stream);
    kernels::reduce(kernels::ReduceOp::sum, flat(elements.view()), flat(sum.mutable_view()), 1.0, 0,
                    stream);
  }
  const Tensor recorded =
      record(name, sum, {&prediction, &target}, {Saved::input(0), Saved::input(1)},
             [op, args](Backward& b) {
               const Tensor& a = b.saved(0);
               const ConstView dy = broadcast_to(b.grad().view(), a.shape());
               for (int i = 0; i < 2; ++i) {
                 if (!b.needs(i)) continue;
                 const auto [grad, beta] = b.sink(i);
                 kernels::binary_backward(op, i, dy, a.view(), b.saved(1).view(),
                                          grad.mutable_view(), args, beta, b.stream());
               }
             });
  return {recorded, full({}, weight, compute, prediction.device()), false, {.number = weight}};
}

// ---- Losses over classes ----

/// A row-major view as [rows, classes].
template <class V>
V as_rows(V v) {
  const std::int64_t n = v.shape.back();
  v.shape = {v.numel() / n, n};
  v.strides = {n, 1};
  return v;
}
/// What the kernels need of the options, without the tensor of class weights.
struct ClassOptions {
  std::int64_t ignore_index;
  double label_smoothing;
  bool log_input;

  kernels::CrossEntropyArgs with(const Tensor& class_weights) const {
    return {ignore_index, label_smoothing,
            class_weights.defined() ? class_weights.view() : ConstView{}, log_input};
  }
};

Shape without(Shape shape, int axis) {
  shape.erase(axis);
  return shape;
}

/// The axis of the classes. Throws unless the target has x's shape without it, and if both axis 1
/// and the last one would do and the caller has named none.
int class_axis(const char* op, const Tensor& x, const Tensor& target,
               std::optional<std::int64_t> named) {
  FIRN_CHECK(x.rank() > 0, op, "the last axis holds the classes", "{} has no classes", describe(x));
  const int last = x.rank() - 1;
  const int axis = named ? normalize_axis(op, *named, x.rank()) : last;
  FIRN_CHECK(x.shape()[axis] > 0, op, "the last axis holds the classes, or {.axis = ...}",
             "{} has no classes", describe(x));
  FIRN_CHECK(target.shape() != x.shape(), op,
             "class numbers are wanted: firn::argmax(target, axis) makes them of one-hot rows",
             "target {} has an axis of classes, as {} has", describe(target), describe(x));
  FIRN_CHECK(!is_floating(target.dtype()), op, "cast it: target.to(firn::i64)",
             "class numbers are integers, target is {}", describe(target));
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

/// The denominator of a loss over classes, as the host knows it.
LossCount class_count(const Tensor& target, const CrossEntropyOptions& options) {
  LossCount count{.number = {},
                  .target = target,
                  .class_weights = options.class_weights,
                  .ignore_index = options.ignore_index};
  count.target_version = target.storage()->version();
  if (count.class_weights.defined())
    count.class_weights_version = count.class_weights.storage()->version();
  return count;
}

Loss class_loss(const char* op, const Tensor& scores, const Tensor& target,
                const CrossEntropyOptions& options, bool log_input) {
  require_floating(op, scores);
  require_defined(op, target);
  const int axis = class_axis(op, scores, target, options.axis);
  require_index(op, target, true);
  Axes order;
  for (int i = 0; i < scores.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  const Tensor x = axis == scores.rank() - 1 ? scores : permute(scores, order);
  FIRN_CHECK(target.device() == x.device(), op, "target.to(x.device())",
             "devices differ: {} and target {}", describe(x), describe(target));
  FIRN_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1, op,
             "label_smoothing is in [0, 1)", "label_smoothing = {}", options.label_smoothing);
  const Tensor& w = options.class_weights;
  if (w.defined()) {
    const Shape classes = {x.shape().back()};
    FIRN_CHECK(w.shape() == classes && is_floating(w.dtype()) && w.device() == x.device(), op,
               "one floating weight per class, on the device of the logits",
               "class_weights {} for {}: expected shape {}", describe(w), describe(x), classes);
  }

  const Tensor input = contiguous(x);
  const Tensor index = contiguous(target);
  const Tensor class_weights = w.defined() ? contiguous(w.detach()) : Tensor();
  const ClassOptions kept{options.ignore_index, options.label_smoothing, log_input};
  const DType compute = compute_dtype(x.dtype());
  const Tensor sum = empty({}, compute, x.device());
  const Tensor weight = empty({}, compute, x.device());
  const Tensor stats = empty({index.numel(), 2}, compute, x.device());
  kernels::cross_entropy(as_rows(input.view()), flat(index.view()), kept.with(class_weights),
                         sum.mutable_view(), weight.mutable_view(), stats.mutable_view(),
                         stream_of(x));
  const Tensor recorded = record(
      op, sum, {&input},
      {Saved::input(0), Saved::other(index), Saved::other(stats), Saved::other(class_weights)},
      [kept](Backward& b) {
        const auto [dx, beta] = b.sink(0);
        kernels::cross_entropy_backward(
            b.grad().view(), as_rows(b.saved(0).view()), flat(b.saved(1).view()), b.saved(2).view(),
            kept.with(b.saved(3)), as_rows(dx.mutable_view()), beta, b.pending_seed(), b.stream());
      });
  // Without elements the backward kernel does not run.
  if (autograd::Node* node = autograd::node_of(recorded)) node->takes_pending_seed = x.numel() > 0;
  return {recorded, weight, false, class_count(target, options)};
}

/// Whether the host can tell that two losses have the same denominator.
bool same_denominator(const Loss& a, const Loss& b) {
  if (a.weight.impl() == b.weight.impl()) return true;
  const LossCount &x = a.count, &y = b.count;
  if (x.number || y.number) return x.number == y.number;
  return x.target.defined() && x.target.impl() == y.target.impl() &&
         x.target_version == y.target_version && x.ignore_index == y.ignore_index &&
         x.class_weights.impl() == y.class_weights.impl() &&
         x.class_weights_version == y.class_weights_version;
}

std::string describe(const LossCount& count) {
  if (count.number) return fmt::format("{}", *count.number);
  if (count.target.defined())
    return fmt::format("the classes counted in {}", firn::describe(count.target));
  return "a weight on the device";
}

}  // namespace

Tensor Loss::mean() const {
  // A weight of 0 becomes infinity: mean and gradient are then 0, not NaN.
  const double infinity = std::numeric_limits<double>::infinity();
  const auto constant = [this](double v) { return full({}, v, weight.dtype(), weight.device()); };
  return div(sum, where(ne(weight, constant(0)), weight, constant(infinity)));
}

double Loss::item() const {
  const double w = weight.item();
  return w == 0 ? 0 : sum.item() / w;
}

void Loss::backward() const { mean().backward(); }

Loss operator*(double factor, const Loss& loss) {
  Loss scaled = loss;
  scaled.sum = mul(loss.sum, factor);
  return scaled;
}

Loss operator+(const Loss& a, const Loss& b) {
  FIRN_CHECK(a.weight.defined() && b.weight.defined(), "Loss + Loss",
             "begin a sum with its first loss: Loss total = first; or keep it in a "
             "std::optional<Loss>",
             "the {} operand is an empty Loss", a.weight.defined() ? "second" : "first");
  FIRN_CHECK(same_denominator(a, b), "Loss + Loss",
             "to add the means write a + b.mean_per(a); to add the sums over a's, a + b.per(a)",
             "a and b are divided by different numbers: {}, and {}", describe(a.count),
             describe(b.count));
  Loss total = a;
  total.sum = add(a.sum, b.sum);
  total.coupled = a.coupled || b.coupled;
  return total;
}

Loss Loss::per(const Loss& other) const {
  require_defined("Loss::per", other.weight);
  return {sum, other.weight, coupled, other.count};
}

Loss Loss::mean_per(const Loss& other) const {
  require_defined("Loss::mean_per", other.weight);
  return {mul(mean(), cast(other.weight, sum.dtype())), other.weight, coupled, other.count};
}

std::ostream& operator<<(std::ostream& out, const Loss& loss) { return out << loss.item(); }

Loss cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  return class_loss("cross_entropy", logits, target, options, false);
}

Loss nll_loss(const Tensor& log_probabilities, const Tensor& target,
              const CrossEntropyOptions& options) {
  return class_loss("nll_loss", log_probabilities, target, options, true);
}

Loss mse_loss(const Tensor& prediction, const Tensor& target) {
  require_pair("mse_loss", prediction, target);
  return elementwise_loss(BinaryOp::squared_error, prediction, target,
                          static_cast<double>(prediction.numel()));
}

Loss l1_loss(const Tensor& prediction, const Tensor& target) {
  require_pair("l1_loss", prediction, target);
  return elementwise_loss(BinaryOp::absolute_error, prediction, target,
                          static_cast<double>(prediction.numel()));
}

Loss huber_loss(const Tensor& prediction, const Tensor& target, double delta) {
  require_pair("huber_loss", prediction, target);
  FIRN_CHECK(std::isfinite(delta) && delta > 0, "huber_loss", "delta is a positive distance",
             "delta = {}", delta);
  return elementwise_loss(BinaryOp::huber, prediction, target,
                          static_cast<double>(prediction.numel()), {delta});
}

Loss bce_with_logits(const Tensor& logits, const Tensor& target) {
  require_pair("bce_with_logits", logits, target);
  return elementwise_loss(BinaryOp::bce_with_logits, logits, target,
                          static_cast<double>(logits.numel()));
}

Loss kl_div(const Tensor& log_probabilities, const Tensor& target) {
  require_pair("kl_div", log_probabilities, target);
  const Shape& shape = log_probabilities.shape();
  const std::int64_t last = shape.empty() ? 1 : shape.back();
  const std::int64_t count = last > 0 ? log_probabilities.numel() / last : 0;
  return elementwise_loss(BinaryOp::kl_div, log_probabilities, target, static_cast<double>(count));
}

Loss info_nce(const Tensor& queries, const Tensor& keys, double temperature) {
  require_floating("info_nce", queries);
  require_same("info_nce", queries, keys);
  FIRN_CHECK(queries.rank() == 2 && queries.shape() == keys.shape(), "info_nce",
             "row i of the one belongs with row i of the other", "queries {}, keys {}",
             describe(queries), describe(keys));
  // Logits of rows of length 1 differ by 2 / temperature at most. If 4 / temperature is infinite,
  // the temperature is subnormal, and kernels take it as 0.
  const double most = max_of(compute_dtype(queries.dtype()));
  FIRN_CHECK(temperature > 0 && temperature <= most && 4 / temperature <= most, "info_nce",
             "temperatures lie around 0.07, for rows of length 1; larger ones tell rows less apart",
             "temperature = {} is not positive, or it or 4 / temperature is infinite as {}",
             temperature, compute_dtype(queries.dtype()));
  const Tensor similar = matmul(queries, transpose(keys, 0, 1));
  const Tensor logits = div(cast(similar, compute_dtype(similar.dtype())), temperature);
  Loss loss = cross_entropy(logits, arange(queries.size(0), 0, 1, i64, queries.device()));
  loss.coupled = true;
  loss.count = {.number = static_cast<double>(queries.size(0))};
  return loss;
}

}  // namespace firn
