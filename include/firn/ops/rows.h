// Softmax, norms and dropout: operations on the rows of a tensor.
#pragma once

#include <concepts>
#include <cstdint>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

/// e^x / sum e^x along `axis`; the row's maximum is subtracted first. A row of -inf gives NaN.
Tensor softmax(const Tensor& x, std::int64_t axis = -1);
Tensor log_softmax(const Tensor& x, std::int64_t axis = -1);
/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016), biased
/// variance; weight and bias [n], either may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang & Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
/// Each element is zero with probability p, else x/(1-p). The mask is recomputed from the random
/// key in backward, not stored. p in [0, 1). training = false: x itself.
Tensor dropout(const Tensor& x, double p, bool training = true,
               Generator& generator = default_generator());
Tensor dropout(const Tensor&, std::same_as<bool> auto) = delete;  // dropout(x, p, training)

}  // namespace firn
