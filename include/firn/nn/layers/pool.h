// Pooling and resizing as modules, for Sequential. Each calls the op of the same name in pool.h,
// which states shapes and rules. They have no parameters.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"
#include "firn/ops/pool.h"

namespace firn::nn {

/// Largest value in each window: x [n, c, h, w] -> [n, c, p, q], or without n.
class MaxPool2d : public Module {
 public:
  /// Throws Error unless the window is positive; forward() checks the rest.
  explicit MaxPool2d(Size2 window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 window_;
  Pool2dOptions options_;
};

/// Mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2 window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 window_;
  Pool2dOptions options_;
};

/// Largest value in each window of rows: x [n, c, l] -> [n, c, q], or without n.
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(std::int64_t window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t window_;
  Pool2dOptions options_;
};

/// Mean of each window of x [n, c, l].
class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(std::int64_t window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t window_;
  Pool2dOptions options_;
};

/// Largest values of out.h x out.w windows that cover an image of any size.
class AdaptiveMaxPool2d : public Module {
 public:
  /// Throws Error unless `out` is positive.
  explicit AdaptiveMaxPool2d(Size2 out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 out_;
};

/// Means of out.h x out.w windows that cover the image: see adaptive_avg_pool2d().
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2 out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 out_;
};

/// Mean over height and width: x [n, c, h, w] -> [n, c].
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

/// Largest values of `out` windows that cover rows x [n, c, l] of any length.
class AdaptiveMaxPool1d : public Module {
 public:
  /// Throws Error unless `out` is positive.
  explicit AdaptiveMaxPool1d(std::int64_t out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t out_;
};

/// Means of `out` windows that cover the row.
class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(std::int64_t out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t out_;
};

/// Largest value in each window of volumes: x [n, c, d, h, w] -> [n, c, o, p, q], or without n.
class MaxPool3d : public Module {
 public:
  /// Throws Error unless the window is positive; forward() checks the rest.
  explicit MaxPool3d(Size3 window, const Pool3dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size3 window_;
  Pool3dOptions options_;
};

/// Mean of each window of volumes.
class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(Size3 window, const Pool3dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size3 window_;
  Pool3dOptions options_;
};

/// Largest values of out.d x out.h x out.w windows that cover volumes of any size.
class AdaptiveMaxPool3d : public Module {
 public:
  /// Throws Error unless `out` is positive.
  explicit AdaptiveMaxPool3d(Size3 out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size3 out_;
};

/// Means of out.d x out.h x out.w windows that cover the volume.
class AdaptiveAvgPool3d : public Module {
 public:
  explicit AdaptiveAvgPool3d(Size3 out);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size3 out_;
};

/// (sum of x^p over each window)^(1/p): see lp_pool2d().
class LPPool2d : public Module {
 public:
  /// Throws Error unless the window is positive; forward() checks the rest.
  LPPool2d(double p, Size2 window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double p_;
  Size2 window_;
  Pool2dOptions options_;
};

/// (sum of x^p over each window)^(1/p) along one axis: see lp_pool1d().
class LPPool1d : public Module {
 public:
  LPPool1d(double p, std::int64_t window, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double p_;
  std::int64_t window_;
  Pool2dOptions options_;
};

/// Images `scale` times as high and wide: x [n, c, h, w] -> [n, c, scale.h h, scale.w w]. See
/// upsample2d().
class Upsample : public Module {
 public:
  /// Throws Error unless `scale` is positive.
  explicit Upsample(Size2 scale, Upsampling how = Upsampling::nearest,
                    const UpsampleOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 scale_;
  Upsampling how_;
  UpsampleOptions options_;
};

/// Rows `scale` times as long: x [n, c, l] -> [n, c, scale l]. See upsample1d().
class Upsample1d : public Module {
 public:
  /// Throws Error unless `scale` is positive.
  explicit Upsample1d(std::int64_t scale, Upsampling how = Upsampling::nearest,
                      const UpsampleOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t scale_;
  Upsampling how_;
  UpsampleOptions options_;
};

/// Volumes `scale` times as large along each axis: x [n, c, d, h, w] -> [n, c, scale.d d, scale.h
/// h, scale.w w]. See upsample3d().
class Upsample3d : public Module {
 public:
  /// Throws Error unless `scale` is positive.
  explicit Upsample3d(Size3 scale, Upsampling how = Upsampling::nearest,
                      const UpsampleOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size3 scale_;
  Upsampling how_;
  UpsampleOptions options_;
};

}  // namespace firn::nn
