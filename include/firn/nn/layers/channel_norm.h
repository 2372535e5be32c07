// Normalisation of images and sequences over groups of channels of one sample. The result is the
// same in training and evaluation, and for any division into micro-batches. For BatchNorm see
// batch_norm.h.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"

namespace firn::nn {

struct GroupNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< the layer has weight and bias
  DType dtype = f32;
  Device device = default_device();
};

/// (x - mean) / sqrt(var + eps) * weight + bias with mean and variance over the c / groups channels
/// of a group, for each sample: x [n, c, ...], of rank 2 to 5 (Wu & He 2018). weight [c] starts at
/// 1, bias [c] at 0.
class GroupNorm : public Module {
 public:
  /// Throws Error unless groups > 0 divides c > 0, and eps >= 0.
  GroupNorm(std::int64_t groups, std::int64_t c, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [c], or undefined
  Parameter bias;    ///< [c], or undefined

 private:
  std::int64_t groups_, c_;
  double eps_;
};

struct InstanceNormOptions {
  double eps = 1e-5;    ///< added to the variance
  bool affine = false;  ///< the layer has weight and bias
  DType dtype = f32;
  Device device = default_device();
};

/// Normalises each channel of each sample by its own mean and variance (Ulyanov et al. 2016), in
/// evaluation too: it has no running statistics. Throws if a channel has one value only.
class InstanceNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [c], or undefined
  Parameter bias;    ///< [c], or undefined

 protected:
  /// `rank` is the rank of inputs. Throws Error unless c > 0 and eps >= 0.
  InstanceNorm(const char* what, int rank, std::int64_t c, const InstanceNormOptions& options);

 private:
  const char* what_;
  int rank_;
  std::int64_t c_;
  double eps_;
};

/// Takes x [n, c, l].
class InstanceNorm1d : public InstanceNorm {
 public:
  explicit InstanceNorm1d(std::int64_t c, const InstanceNormOptions& options = {})
      : InstanceNorm("InstanceNorm1d", 3, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

/// Takes x [n, c, h, w].
class InstanceNorm2d : public InstanceNorm {
 public:
  explicit InstanceNorm2d(std::int64_t c, const InstanceNormOptions& options = {})
      : InstanceNorm("InstanceNorm2d", 4, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

/// Takes x [n, c, d, h, w].
class InstanceNorm3d : public InstanceNorm {
 public:
  explicit InstanceNorm3d(std::int64_t c, const InstanceNormOptions& options = {})
      : InstanceNorm("InstanceNorm3d", 5, c, options) {}
  FIRN_DECLARE_MEMBERS()
};

struct LocalResponseNormOptions {
  double alpha = 1e-4;  ///< factor of the mean
  double beta = 0.75;   ///< exponent of the divisor
  double k = 1;         ///< added to alpha times the mean
};

/// Divides by the mean square of `size` neighbouring channels: see local_response_norm(). It has no
/// parameters.
class LocalResponseNorm : public Module {
 public:
  /// Throws Error unless size > 0.
  explicit LocalResponseNorm(std::int64_t size, const LocalResponseNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t size_;
  LocalResponseNormOptions options_;
};

}  // namespace firn::nn
