// Similarities and distances as modules of two inputs. Each calls the op of distance.h, which
// states shapes and rules. They have no parameters.
#pragma once

#include <cstdint>

#include "firn/nn/module_of.h"
#include "firn/ops/distance.h"

namespace firn::nn {

/// a . b / (|a| |b|) along `axis`, which is removed.
class CosineSimilarity : public ModuleOf<CosineSimilarity> {
 public:
  explicit CosineSimilarity(std::int64_t axis = 1, double eps = 1e-8) : axis_(axis), eps_(eps) {}
  /// The inputs broadcast.
  Tensor forward(const Tensor& a, const Tensor& b);
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t axis_;
  double eps_;
};

/// The p-norm of a - b + eps along the last axis.
class PairwiseDistance : public ModuleOf<PairwiseDistance> {
 public:
  explicit PairwiseDistance(const DistanceOptions& options = {}) : options_(options) {}
  /// The inputs broadcast.
  Tensor forward(const Tensor& a, const Tensor& b);
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  DistanceOptions options_;
};

}  // namespace firn::nn
