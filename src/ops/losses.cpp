// Losses: sum and denominator, one recorded node each. They compute in f32 and give f32 sums
// whatever 16-bit dtype they read, so autocast has nothing to cast: f32 copies of 16-bit logits
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
  return {recorded, full({}, weight, compute, prediction.device())};
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

Loss class_loss(const char* op, const Tensor& x, const Tensor& target,
                const CrossEntropyOptions& options, bool log_input) {
  require_floating(op, x);
  require_index(op, target, true);
  FIRN_CHECK(x.rank() > 0 && x.shape().back() > 0, op, "the last axis holds the classes",
             "{} has no classes", describe(x));
  Shape leading = x.shape();
  leading.pop_back();
  FIRN_CHECK(target.shape() == leading, op, "give one class number per row, without a class axis",
             "target {} for {}: expected shape {}", describe(target), describe(x), leading);
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
            kept.with(b.saved(3)), as_rows(dx.mutable_view()), beta, b.begins(), b.stream());
      });
  if (autograd::Node* node = autograd::node_of(recorded)) node->can_begin = true;
  return {recorded, weight};
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
  return {mul(loss.sum, factor), loss.weight, loss.coupled};
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
  FIRN_CHECK(std::isfinite(temperature) && temperature > 0, "info_nce", "", "temperature = {}",
             temperature);
  const Tensor similar = matmul(queries, transpose(keys, 0, 1));
  const Tensor logits = div(cast(similar, compute_dtype(similar.dtype())), temperature);
  Loss loss = cross_entropy(logits, arange(queries.size(0), 0, 1, i64, queries.device()));
  loss.coupled = true;
  return loss;
}

}  // namespace firn
