// Creates tensors from numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/checked.h"
#include "kernels/copy.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

Tensor filled(const char* op, const Shape& shape, double value, const TensorOptions& options) {
  require_creatable(op, shape, options.dtype, options.format);
  require_holds(op, options.dtype, value);
  Tensor t = empty(shape, options);
  t.storage()->made_by(op);
  kernels::fill(t.mutable_view(), value, stream_of(t));
  ended(op);
  return t;
}

}  // namespace

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  return filled("full", shape, value, options);
}
Tensor ones(const Shape& shape, const TensorOptions& options) {
  return filled("ones", shape, 1, options);
}

Tensor empty_like(const Tensor& x) {
  require_defined("empty_like", x);
  return empty(x.shape(), x.dtype(), x.device(), format_of(x.shape(), x.strides()));
}
Tensor zeros_like(const Tensor& x) {
  require_defined("zeros_like", x);
  Tensor t = empty_like(x);
  zero_bytes(t.impl()->data(), t.device(), t.bytes());
  return t;
}
Tensor full_like(const Tensor& x, double value) {
  require_defined("full_like", x);
  return filled(
      "full_like", x.shape(), value,
      {.dtype = x.dtype(), .device = x.device(), .format = format_of(x.shape(), x.strides())});
}
Tensor ones_like(const Tensor& x) {
  require_defined("ones_like", x);
  Tensor t = empty_like(x);
  kernels::fill(t.mutable_view(), 1, stream_of(t));
  ended("ones_like");
  return t;
}

namespace {

constexpr const char* kArange = "arange";
constexpr const char* kArangeHint =
    "arange(start, end, step) steps from start to end; for `count` numbers see arange(count, "
    "{.start, .step})";

}  // namespace

Tensor arange(std::int64_t count, const ArangeOptions& options) {
  const auto& [start, step, dtype, device] = options;
  FIRN_CHECK(count >= 0, kArange, "an empty tensor has a count of 0", "count is {}", count);
  require_creatable(kArange, {count}, dtype);
  // From halves: the last number can be finite though the way to it is not.
  const double way = static_cast<double>(std::max<std::int64_t>(count - 1, 0)) * (step / 2);
  const double last = count > 1 ? 2 * (start / 2 + way) : start;
  FIRN_CHECK(std::isfinite(start) && std::isfinite(step) && std::isfinite(last), kArange,
             "start and step are finite, and so is the last number",
             "{} numbers from {} on in steps of {}", count, start, step);
  if (count > 0) {
    require_holds(kArange, dtype, start);
    if (count > 1) require_holds(kArange, dtype, start + step);
    require_holds(kArange, dtype, last);
  }
  if (is_stored_only(dtype))
    return cast(arange(count, {start, step, compute_dtype(dtype), device}), dtype);
  if (!std::isfinite(2 * way)) return 2 * arange(count, {start / 2, step / 2, dtype, device});
  Tensor t = empty({count}, dtype, device);
  t.storage()->made_by(kArange);
  kernels::arange(t.mutable_view(), start, step, stream_of(t));
  ended(kArange);
  return t;
}

Tensor firn::detail::numbers_between(double start, double end, double step, DType dtype,
                                     Device device) {
  FIRN_CHECK(std::isfinite(start) && std::isfinite(end) && std::isfinite(step) && step != 0,
             kArange, kArangeHint, "no numbers lead from {} to {} in steps of {}", start, end,
             step);
  const double way = end - start,
               steps = std::isfinite(way) ? way / step : end / step - start / step;
  FIRN_CHECK(steps >= 0, kArange, kArangeHint, "steps of {} lead away from the end: {} to {}", step,
             start, end);
  const double count = std::ceil(steps);
  FIRN_CHECK(count <= static_cast<double>(kMaxElements), kArange, kArangeHint,
             "{} to {} in steps of {} are too many numbers", start, end, step);
  return arange(static_cast<std::int64_t>(count),
                {.start = start, .step = step, .dtype = dtype, .device = device});
}

Tensor firn::detail::numbers_between(std::int64_t start, std::int64_t end, std::int64_t step,
                                     DType dtype, Device device) {
  FIRN_CHECK(step != 0, kArange, kArangeHint, "no numbers lead from {} to {} in steps of {}", start,
             end, step);
  FIRN_CHECK(start == end || (start < end) == (step > 0), kArange, kArangeHint,
             "steps of {} lead away from the end: {} to {}", step, start, end);
  // Differences of two's complement numbers, without a sign: they need 64 bits.
  const auto distance = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  const std::uint64_t way = step > 0 ? distance(start, end) : distance(end, start);
  const std::uint64_t stride = step > 0 ? distance(0, step) : distance(step, 0);
  const std::uint64_t count = way / stride + (way % stride != 0);
  FIRN_CHECK(count <= static_cast<std::uint64_t>(kMaxElements), kArange, kArangeHint,
             "{} to {} in steps of {} are too many numbers", start, end, step);
  const auto n = static_cast<std::int64_t>(count);
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // doubles hold all integers up to it
  const bool exact = start >= -kExact && start <= kExact && end >= -kExact && end <= kExact &&
                     stride <= static_cast<std::uint64_t>(kExact);
  if (exact || dtype != i64)
    return arange(n, {.start = static_cast<double>(start),
                      .step = static_cast<double>(step),
                      .dtype = dtype,
                      .device = device});
  return arange(n, device) * tensor(step, device) + tensor(start, device);
}

std::int64_t firn::detail::to_i64(std::uint64_t value) {
  FIRN_CHECK(value <= static_cast<std::uint64_t>(INT64_MAX), kArange, "integers are i64",
             "{} does not fit i64", value);
  return static_cast<std::int64_t>(value);
}

Tensor eye(std::int64_t n, const TensorOptions& options) {
  FIRN_CHECK(options.format == MemoryFormat::contiguous, "eye", "leave the memory format out",
             "a matrix has no channels");
  checked_elements("eye", {n, n});
  Tensor t = zeros({n, n}, options);
  const Tensor diagonal = t.as_strided({n}, {n + 1});
  kernels::fill(diagonal.mutable_view(), 1, stream_of(t));
  ended("eye");
  return t;
}

}  // namespace firn
