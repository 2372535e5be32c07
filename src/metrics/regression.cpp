#include "firn/metrics/regression.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "firn/dist/group.h"
#include "firn/ops/ops.h"

namespace firn::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Returns output - target in f64.
Tensor differences(const char* name, const Tensor& output, const Tensor& target) {
  FIRN_CHECK(output.shape() == target.shape(), name, "reshape one of them: y.squeeze(1)",
             "shapes differ: output {} and target {}", describe(output), describe(target));
  return cast(output, f64) - cast(target, f64);
}

/// Returns a sum, and the number of its terms.
Tensor sum_and_count(const Tensor& terms) {
  return stack({sum(terms), full({}, static_cast<double>(terms.numel()), f64, terms.device())});
}

}  // namespace

MeanAbsoluteError::MeanAbsoluteError() : SumMetric("MeanAbsoluteError", f64, 2) {}

Tensor MeanAbsoluteError::sums_of(const Tensor& output, const Tensor& target) const {
  return sum_and_count(abs(differences(name(), output, target)));
}

std::vector<Value> MeanAbsoluteError::figures(const std::vector<double>& sums) const {
  return {{"mae", sums[0] / sums[1]}};
}

RootMeanSquaredError::RootMeanSquaredError() : SumMetric("RootMeanSquaredError", f64, 2) {}

Tensor RootMeanSquaredError::sums_of(const Tensor& output, const Tensor& target) const {
  return sum_and_count(square(differences(name(), output, target)));
}

std::vector<Value> RootMeanSquaredError::figures(const std::vector<double>& sums) const {
  return {{"rmse", std::sqrt(sums[0] / sums[1])}};
}

// The sums are count and mean of the targets, their squared distances from the mean, and the
// squared differences.
R2::R2() : SumMetric("R2", f64, 4) {}

Tensor R2::sums_of(const Tensor& output, const Tensor& target) const {
  const Tensor misses = sum(square(differences(name(), output, target)));
  const Tensor t = cast(target, f64);
  const auto n = static_cast<double>(t.numel());
  if (n == 0) return zeros({4}, f64, t.device());
  return stack({full({}, n, f64, t.device()), mean(t), var(t, {}, 0) * n, misses});
}

Tensor R2::together(const Tensor& a, const Tensor& b) const {
  const Tensor n = a[0] + b[0];
  const Tensor share = b[0] / maximum(n, 1.0);
  const Tensor apart = b[1] - a[1];
  return stack({n, a[1] + apart * share, a[2] + b[2] + square(apart) * a[0] * share, a[3] + b[3]});
}

Tensor R2::of_ranks(const Tensor& own, const dist::Group& group) const {
  const Tensor parts = empty({group.size(), 4}, f64, group.device());
  group.all_gather(contiguous(own), parts);
  Tensor all = parts[0];
  for (int r = 1; r < group.size(); ++r) all = together(all, parts[r]);
  return contiguous(all);
}

std::vector<Value> R2::figures(const std::vector<double>& sums) const {
  const double spread = sums[2], misses = sums[3];
  if (sums[0] < 2) return {{"r2", kNaN}};
  if (spread == 0) return {{"r2", misses == 0 ? 1.0 : 0.0}};
  return {{"r2", 1 - misses / spread}};
}

}  // namespace firn::metrics
