// Similarities and distances of vectors that lie along an axis.
#pragma once

#include <cstdint>

#include "firn/tensor.h"

namespace firn {

/// a . b / (max(|a|, eps) max(|b|, eps)) along `axis`, which is removed. a and b are floating and
/// broadcast. It is computed in f32 (f64 for f64) and rounded once. For a vector shorter than eps
/// the gradient is that of a vector of length eps in its direction, as in PyTorch.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, std::int64_t axis = 1,
                         double eps = 1e-8);

/// x / max(|x|, eps) for the vectors x along `axis`: of length 1, unless x is shorter than eps. It
/// is computed in f32 (f64 for f64) and rounded once. Floating dtypes.
Tensor normalize(const Tensor& x, std::int64_t axis = 1, double eps = 1e-12);

/// Options of pairwise_distance().
struct DistanceOptions {
  double p = 2;  ///< order of the norm; 2: Euclidean, 1: sums of absolute values, inf: largest one
  double eps = 1e-6;      ///< added to each difference
  bool keepdims = false;  ///< the last axis stays, with size 1
};
/// The p-norm of a - b + eps along the last axis, which is removed. a and b are floating and
/// broadcast. It is computed in f32 (f64 for f64) and rounded once. Throws Error if p is 0 or NaN.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, const DistanceOptions& options = {});

}  // namespace firn
