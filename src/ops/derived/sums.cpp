// Sums, differences and comparisons, each a sequence of other operations.
#include <algorithm>

#include "firn/ops/elementwise.h"
#include "firn/ops/products.h"
#include "firn/ops/rearrange.h"
#include "firn/ops/reduce.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

/// All elements of an axis but the last, and all but the first.
Tensor before_last(const Tensor& x, int axis) {
  return slice(x, axis, 0, std::max<std::int64_t>(x.size(axis) - 1, 0));
}
Tensor after_first(const Tensor& x, int axis) { return slice(x, axis, 1, x.size(axis)); }

int own_axis(const char* op, const Tensor& x, std::int64_t axis) {
  require_defined(op, x);
  FIRN_CHECK(x.rank() > 0, op, "unsqueeze it", "{} has no axis", describe(x));
  return normalize_axis(op, axis, x.rank());
}

}  // namespace

Tensor trace(const Tensor& x) try {
  require_defined("trace", x);
  FIRN_CHECK(x.rank() == 2, "trace", "sum(diagonal(x, 0, -2, -1), -1) takes batches",
             "{} is no matrix", describe(x));
  return sum(diagonal(x));
}
FIRN_AS_OP("trace")

Tensor diff(const Tensor& x, std::int64_t times, std::int64_t axis) {
  const int a = own_axis("diff", x, axis);
  FIRN_CHECK(times >= 0, "diff", "0 leaves x as it is", "times = {}", times);
  FIRN_CHECK(x.dtype() != DType::boolean, "diff", "logical_xor() of neighbours",
             "bools are no numbers: {}", describe(x));
  return rounded_once(
      [&](Tensor y) {
        for (std::int64_t i = 0; i < std::min(times, x.size(a)); ++i)
          y = sub(after_first(y, a), before_last(y, a));
        return y;
      },
      x);
}

Tensor nansum(const Tensor& x, const Axes& axes, bool keepdims) try {
  require_floating("nansum", x);
  return sum(where(isnan(x), 0, x), axes, keepdims);
}
FIRN_AS_OP("nansum")

Tensor nanmean(const Tensor& x, const Axes& axes, bool keepdims) try {
  require_floating("nanmean", x);
  const Tensor there = logical_not(isnan(x.detach()));
  const Tensor count = sum(cast(there, compute_dtype(x.dtype())), axes, keepdims);
  return cast(div(sum(where(there, cast(x, compute_dtype(x.dtype())), 0), axes, keepdims), count),
              x.dtype());
}
FIRN_AS_OP("nanmean")

Tensor trapezoid(const Tensor& y, double step, std::int64_t axis) {
  const int a = own_axis("trapezoid", y, axis);
  require_floating("trapezoid", y);
  return rounded_once(
      [&](const Tensor& t) {
        return mul(sum(add(after_first(t, a), before_last(t, a)), a), step / 2);
      },
      y);
}

Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis) {
  constexpr const char* kOp = "trapezoid";
  const int a = own_axis(kOp, y, axis);
  require_floating(kOp, y);
  require_same(kOp, y, x, false);
  Tensor at = x;
  if (x.rank() == 1) {
    Shape shape = Dims::filled(y.rank(), 1);
    shape[a] = x.numel();
    at = reshape(x, shape);
  }
  FIRN_CHECK(
      broadcasts_to(at.shape(), y.shape()) && at.rank() == y.rank() && at.size(a) == y.size(a), kOp,
      "one place for each sample", "x {} for y {} along axis {}", describe(x), describe(y), a);
  return rounded_once(
      [&](const Tensor& t, const Tensor& places) {
        const Tensor twice = add(after_first(t, a), before_last(t, a));
        return mul(sum(mul(diff(places, 1, a), twice), a), 0.5);
      },
      y, at);
}

Tensor cov(const Tensor& x, std::int64_t correction) {
  constexpr const char* kOp = "cov";
  require_floating(kOp, x);
  FIRN_CHECK(x.rank() == 1 || x.rank() == 2, kOp, "a row for each variable",
             "{} is not [variables, observations]", describe(x));
  const std::int64_t n = x.size(-1);
  FIRN_CHECK(n > 0, kOp, "check that there are observations", "{} has none", describe(x));
  const double divisor = std::max(0.0, static_cast<double>(n) - static_cast<double>(correction));
  return rounded_once(
      [&](const Tensor& t) {
        const Tensor rows = t.rank() == 1 ? unsqueeze(t, 0) : t;
        // Twice: the mean is rounded, which counts if the deviation is few units in its last place.
        Tensor apart = sub(rows, mean(rows, 1, true));
        apart = sub(apart, mean(apart, 1, true));
        const Tensor y = div(matmul(apart, transpose(apart, 0, 1)), divisor);
        return rows.size(0) == 1 ? reshape(y, {}) : y;
      },
      x);
}

Tensor corrcoef(const Tensor& x) try {
  require_floating("corrcoef", x);
  return rounded_once(
      [](const Tensor& t) {
        const Tensor y = cov(t);
        if (y.rank() == 0) return div(y, y);
        const Tensor deviation = sqrt(diagonal(y));
        return clamp(div(div(y, unsqueeze(deviation, 1)), unsqueeze(deviation, 0)), -1, 1);
      },
      x);
}
FIRN_AS_OP("corrcoef")

Tensor kron(const Tensor& a, const Tensor& b) try {
  constexpr const char* kOp = "kron";
  require_factors(kOp, a, b);
  const int rank = std::max(a.rank(), b.rank());
  require_rank(kOp, 2 * rank, a, b);
  Shape of_a, of_b, shape;
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - a.rank()), in_b = i - (rank - b.rank());
    const std::int64_t n = in_a < 0 ? 1 : a.size(in_a), m = in_b < 0 ? 1 : b.size(in_b);
    of_a.push_back(n), of_a.push_back(1);
    of_b.push_back(1), of_b.push_back(m);
    shape.push_back(n * m);
  }
  return reshape(mul(reshape(a, of_a), reshape(b, of_b)), shape);
}
FIRN_AS_OP("kron")

bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options) try {
  const Tensor close = isclose(a, b, options);
  return close.numel() == 0 || all(close).item() != 0;
}
FIRN_AS_OP("allclose")

bool equal(const Tensor& a, const Tensor& b) {
  require_same("equal", a, b, false);
  if (a.shape() != b.shape()) return false;
  if (a.numel() == 0) return true;
  const NoGrad guard;
  return all(eq(a.detach(), b.detach())).item() != 0;
}

}  // namespace firn
