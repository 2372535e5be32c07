// Normalisation over the last axis.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"

namespace firn::nn {

struct LayerNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< the layer has weight and bias
  bool bias = true;    ///< if affine: the layer has a bias
  DType dtype = f32;
  Device device = default_device();
};

/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis: x [..., n] -> [..., n]
/// (Ba et al. 2016). weight [n] starts at 1, bias [n] at 0.
class LayerNorm : public Module {
 public:
  /// Throws Error unless n > 0 and eps >= 0.
  explicit LayerNorm(std::int64_t n, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [n], or undefined
  Parameter bias;    ///< [n], or undefined

 private:
  std::int64_t n_;
  double eps_;
};

struct RMSNormOptions {
  double eps = 1e-6;   ///< added to the mean square
  bool affine = true;  ///< the layer has a weight
  DType dtype = f32;
  Device device = default_device();
};

/// x / sqrt(mean(x^2) + eps) * weight over the last axis: x [..., n] -> [..., n]
/// (Zhang & Sennrich 2019). weight [n] starts at 1.
class RMSNorm : public Module {
 public:
  /// Throws Error unless n > 0 and eps >= 0.
  explicit RMSNorm(std::int64_t n, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [n], or undefined

 private:
  std::int64_t n_;
  double eps_;
};

}  // namespace firn::nn
