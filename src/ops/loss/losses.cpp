// Operations of Loss, elementwise losses and InfoNCE; losses over classes are in class_losses.cpp.
// Each is a sum and a denominator, one recorded node. They compute in f32 and give f32 sums
// whatever 16-bit dtype they read. So autocast casts nothing here: f32 copies of 16-bit operands
// would cost memory and gain no digit.
#include "firn/ops/losses.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "ops/loss/class_loss.h"
#include "ops/loss/loss_terms.h"

namespace firn {
namespace {

using namespace ops;
using math::BinaryOp;

// ---- Elementwise losses ----

/// The sum of op(prediction, target) over all elements. Elements and sum are in the compute dtype:
/// the square of an f16 number may be too large for f16.
Loss elementwise_loss(BinaryOp op, const Tensor& prediction, const Tensor& target, double weight,
                      math::Args args = {}) {
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
  return {record_pair(op, sum, prediction, target, args),
          full({}, weight, compute, prediction.device()),
          false,
          {.number = weight}};
}

/// True if the host can tell that two losses have the same denominator.
bool same_denominator(const Loss& a, const Loss& b) {
  if (a.weight.impl() == b.weight.impl()) return true;
  const LossCount &x = a.count, &y = b.count;
  if (x.number || y.number) return x.number == y.number;
  if (x.factors.defined() || y.factors.defined())
    return x.factors.impl() == y.factors.impl() && x.factors_version == y.factors_version &&
           x.terms == y.terms;
  return x.target.defined() && x.target.impl() == y.target.impl() &&
         x.target_version == y.target_version && x.ignore_index == y.ignore_index &&
         x.class_weights.impl() == y.class_weights.impl() &&
         x.class_weights_version == y.class_weights_version &&
         x.row_weights.impl() == y.row_weights.impl() &&
         x.row_weights_version == y.row_weights_version;
}

std::string describe(const LossCount& count) {
  if (count.number) return fmt::format("{}", *count.number);
  if (count.target.defined())
    return fmt::format("the classes counted in {}{}{}", firn::describe(count.target),
                       count.class_weights.defined() ? ", with class weights" : "",
                       count.row_weights.defined() ? ", with row weights" : "");
  if (count.factors.defined())
    return fmt::format("the factors {} of {} terms", firn::describe(count.factors), count.terms);
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
  FIRN_CHECK(
      same_denominator(a, b), "Loss + Loss",
      "to add the means write a + b.mean_per(a); to add the sums over a's, a + b.per(a); losses "
      "made by hand may share one weight tensor",
      "a and b are not known to be divided by the same number: {}, and {}", describe(a.count),
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
  Loss loss = cross_entropy(logits, arange(queries.size(0), i64, queries.device()));
  loss.coupled = true;
  loss.count = {.number = static_cast<double>(queries.size(0))};
  return loss;
}

}  // namespace firn
