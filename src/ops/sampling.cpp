// Random integers, choices and noise, made of uniform numbers.
#include "firn/ops/sampling.h"

#include <cmath>

#include "firn/ops/sort.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

/// Returns uniform numbers in (0, 1), in f64: the 2^32 numbers of a word, moved off both ends.
Tensor inside_unit(const Shape& shape, Device device, Generator& g) {
  return rand(shape, {.dtype = f64, .device = device, .generator = &g}) + 0x1p-33;
}

Tensor noise(const Shape& shape, DType dtype, Device device, Generator& g) {
  return cast(-log(-log(inside_unit(shape, device, g))), dtype);
}

/// Returns scores whose largest are a sample of the classes. NaN would be the largest of all.
Tensor perturbed(const Tensor& logits, Generator& g) {
  const DType wide = compute_dtype(logits.dtype());
  const Tensor x = cast(logits.detach(), wide);
  return where(eq(x, x), x, -HUGE_VAL) + noise(x.shape(), wide, x.device(), g);
}

void require_classes(const char* op, const Tensor& t) {
  require_floating(op, t);
  FIRN_CHECK(t.rank() > 0 && t.size(-1) > 0, op, "the last axis holds the classes",
             "{} has no classes", describe(t));
}

}  // namespace

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               const RandintOptions& options) {
  constexpr const char* kOp = "randint";
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  FIRN_CHECK(low >= -kExact && high <= kExact && low < high && high - low <= std::int64_t{1} << 32,
             kOp, "low < high, at most 2^32 apart", "low {}, high {}", low, high);
  require_holds(kOp, options.dtype, static_cast<double>(low));
  require_holds(kOp, options.dtype, static_cast<double>(high - 1));
  require_creatable(kOp, shape, options.dtype);
  const Tensor u =
      rand(shape, {.dtype = f64, .device = options.device, .generator = options.generator});
  const Tensor above = cast(u * static_cast<double>(high - low), i64);  // truncated
  return cast(above + static_cast<double>(low), options.dtype);
}

Tensor bernoulli(const Tensor& p, Generator& generator) {
  require_floating("bernoulli", p);
  const Tensor u = rand(p.shape(), {.dtype = f64, .device = p.device(), .generator = &generator});
  return cast(lt(u, cast(p.detach(), f64)), p.dtype());
}

Tensor gumbel(const Shape& shape, const GumbelOptions& options) {
  FIRN_CHECK(is_floating(options.dtype), "gumbel", "draw in f32 and cast", "dtype {}",
             options.dtype);
  require_creatable("gumbel", shape, options.dtype);
  return noise(shape, options.dtype, options.device,
               options.generator ? *options.generator : default_generator());
}

Tensor categorical(const Tensor& logits, Generator& generator) {
  require_classes("categorical", logits);
  return argmax(perturbed(logits, generator), -1);
}

Tensor multinomial(const Tensor& weights, std::int64_t count, bool replacement,
                   Generator& generator) {
  constexpr const char* kOp = "multinomial";
  require_classes(kOp, weights);
  FIRN_CHECK(count >= 0 && (replacement || count <= weights.size(-1)), kOp,
             "draw at most as many as there are classes, or with replacement", "count is {} for {}",
             count, describe(weights));
  const Tensor w = cast(weights.detach(), compute_dtype(weights.dtype()));
  const Tensor logits = where(gt(w, 0), log(w), -HUGE_VAL);
  if (!replacement) return topk(perturbed(logits, generator), count, -1).indices;
  require_rank(kOp, weights.rank() + 1, weights);
  Shape rows = weights.shape();
  rows.insert(weights.rank() - 1, count);
  return argmax(perturbed(expand(unsqueeze(logits, -2), rows), generator), -1);
}

Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& options) {
  constexpr const char* kOp = "gumbel_softmax";
  require_floating(kOp, logits);
  const int axis = normalize_axis(kOp, options.axis, logits.rank());
  FIRN_CHECK(options.temperature >= 1e-30 && std::isfinite(options.temperature), kOp, "1 is usual",
             "temperature is {}, not 1e-30 or more", options.temperature);
  FIRN_CHECK(logits.size(axis) > 0, kOp, "the classes lie on `axis`", "{} has no classes",
             describe(logits));
  Generator& g = options.generator ? *options.generator : default_generator();
  const DType wide = compute_dtype(logits.dtype());
  const Tensor z = cast(logits, wide) + noise(logits.shape(), wide, logits.device(), g);
  // The largest is 0 whatever the divisor is.
  const Tensor above = z - max(z.detach(), axis, true);
  const Tensor soft = cast(softmax(above / options.temperature, axis), logits.dtype());
  if (!options.hard) return soft;
  const Tensor best = argmax(soft.detach(), axis, true);
  Shape line = Dims::filled(soft.rank(), 1);
  line[axis] = soft.size(axis);
  const Tensor classes = reshape(arange(soft.size(axis), i64, soft.device()), line);
  // The value is that of the first operand: the others cancel to rounding, so they are added apart.
  return cast(eq(classes, best), soft.dtype()) + (soft - soft.detach());
}

}  // namespace firn
