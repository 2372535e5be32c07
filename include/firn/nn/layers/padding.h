// Layers that move elements: padding, shuffles of pixels and channels, windows. Each calls the op
// of the same name in shape.h and rearrange.h, which states shapes and rules. No parameters.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "firn/nn/module.h"
#include "firn/ops/rearrange.h"

namespace firn::nn {

/// Sizes behind each of the last axes: a list in braces or an Axes, but not a single number. So
/// nn::ZeroPad({1, 2}) can only mean two axes.
class PadAfter {
 public:
  PadAfter(std::initializer_list<std::int64_t> sizes) : sizes_(sizes) {}
  PadAfter(const Axes& sizes) : sizes_(sizes) {}  // NOLINT: meant to convert
  /// The sizes.
  operator const Axes&() const noexcept { return sizes_; }

 private:
  Axes sizes_;
};

/// Base of layers that pad the last axes, one for each given size, in the order of the axes. So one
/// layer serves rows, images and volumes: nn::ReflectionPad({1, 2}) adds 1 row above and below, and
/// 2 columns on the left and on the right. (PyTorch's lists begin with the last axis.)
class Padding : public Module {
 public:
  /// Throws Error if x has fewer axes than there are sizes.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 protected:
  /// Throws Error unless both lists have the same number of sizes, 1 or more, and none is negative.
  Padding(const char* what, const Axes& before, const Axes& after, PadMode mode, double value = 0);

 private:
  const char* what_;
  Axes before_, after_;
  PadMode mode_;
  double value_;
};

/// Adds elements of `value` around the last axes.
class ConstantPad : public Padding {
 public:
  ConstantPad(const Axes& around, double value) : ConstantPad(around, PadAfter(around), value) {}
  ConstantPad(const Axes& before, const PadAfter& after, double value)
      : Padding("ConstantPad", before, after, PadMode::constant, value) {}
  FIRN_DECLARE_MEMBERS()
};

/// Adds zeros around the last axes.
class ZeroPad : public Padding {
 public:
  explicit ZeroPad(const Axes& around) : ZeroPad(around, PadAfter(around)) {}
  ZeroPad(std::initializer_list<std::int64_t> around) : ZeroPad(Axes(around)) {}
  ZeroPad(const Axes& before, const PadAfter& after)
      : Padding("ZeroPad", before, after, PadMode::constant) {}
  FIRN_DECLARE_MEMBERS()
};

/// Mirrors the last axes at their edges, which are not repeated: PadMode::reflect.
class ReflectionPad : public Padding {
 public:
  explicit ReflectionPad(const Axes& around) : ReflectionPad(around, PadAfter(around)) {}
  ReflectionPad(std::initializer_list<std::int64_t> around) : ReflectionPad(Axes(around)) {}
  ReflectionPad(const Axes& before, const PadAfter& after)
      : Padding("ReflectionPad", before, after, PadMode::reflect) {}
  FIRN_DECLARE_MEMBERS()
};

/// Repeats the elements at the edges of the last axes.
class ReplicationPad : public Padding {
 public:
  explicit ReplicationPad(const Axes& around) : ReplicationPad(around, PadAfter(around)) {}
  ReplicationPad(std::initializer_list<std::int64_t> around) : ReplicationPad(Axes(around)) {}
  ReplicationPad(const Axes& before, const PadAfter& after)
      : Padding("ReplicationPad", before, after, PadMode::replicate) {}
  FIRN_DECLARE_MEMBERS()
};

/// Continues the last axes with their other ends.
class CircularPad : public Padding {
 public:
  explicit CircularPad(const Axes& around) : CircularPad(around, PadAfter(around)) {}
  CircularPad(std::initializer_list<std::int64_t> around) : CircularPad(Axes(around)) {}
  CircularPad(const Axes& before, const PadAfter& after)
      : Padding("CircularPad", before, after, PadMode::circular) {}
  FIRN_DECLARE_MEMBERS()
};

/// x [..., c r^2, h, w] -> [..., c, h r, w r]: see pixel_shuffle().
class PixelShuffle : public Module {
 public:
  /// Throws Error unless r > 0.
  explicit PixelShuffle(std::int64_t r);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t r_;
};

/// x [..., c, h r, w r] -> [..., c r^2, h, w]: the inverse of PixelShuffle.
class PixelUnshuffle : public Module {
 public:
  /// Throws Error unless r > 0.
  explicit PixelUnshuffle(std::int64_t r);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t r_;
};

/// Mixes the channels of x [n, c, ...] of all groups: see channel_shuffle().
class ChannelShuffle : public Module {
 public:
  /// Throws Error unless groups > 0.
  explicit ChannelShuffle(std::int64_t groups);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t groups_;
};

/// The windows of images as columns: see unfold().
class Unfold : public Module {
 public:
  /// Throws Error unless the window is positive; forward() checks the rest.
  explicit Unfold(Size2 window, const WindowOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 window_;
  WindowOptions options_;
};

/// Images of out.h x out.w as sums of windows: see fold().
class Fold : public Module {
 public:
  /// Throws Error unless sizes are positive; forward() checks the rest.
  Fold(Size2 out, Size2 window, const WindowOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  Size2 out_, window_;
  WindowOptions options_;
};

}  // namespace firn::nn
