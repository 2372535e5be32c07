// Metrics for regression. Output and target have one shape and any dtypes, and each
// element is a sample. Differences and sums are computed in f64.
#pragma once

#include <vector>

#include "firn/metrics/metric.h"

namespace firn::metrics {

/// "mae": the mean of |y - t|.
class MeanAbsoluteError final : public SumMetric {
 public:
  MeanAbsoluteError();

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
};

/// "rmse": the square root of the mean of (y - t)^2.
class RootMeanSquaredError final : public SumMetric {
 public:
  RootMeanSquaredError();

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
};

/// "r2", the coefficient of determination: 1 - sum (y - t)^2 / sum (t - mean t)^2, as in
/// scikit-learn's r2_score. If all targets are equal, it is 1 if all outputs are right, else 0. It
/// is NaN for fewer than two samples. Batches are combined by their counts, means and squared
/// distances (Chan et al. 1979), so that a large mean does not cost precision.
class R2 final : public SumMetric {
 public:
  R2();

 private:
  Tensor sums_of(const Tensor& output, const Tensor& target) const override;
  std::vector<Value> figures(const std::vector<double>& sums) const override;
  Tensor together(const Tensor& a, const Tensor& b) const override;
  Tensor of_ranks(const Tensor& own, const dist::Group& group) const override;
};

}  // namespace firn::metrics
