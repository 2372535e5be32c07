// Convolutions. Shapes are [batch, channels, height, width], or have one axis of positions, or
// three with the depth before the height. Results are channels-last in memory (channels_last() in
// copy.h), and channels-last operands are not copied. Sums of f16 and bf16 run in f32. Invalid
// arguments throw Error with the op, the values and a hint.
#pragma once

#include <cstdint>

#include "firn/ops/activation.h"
#include "firn/tensor.h"

namespace firn {

/// A pair of numbers for height and width; a single number sets both.
struct Size2 {
  std::int64_t h, w;                                                 ///< height and width
  constexpr Size2(std::int64_t both) noexcept : h(both), w(both) {}  // NOLINT: meant to convert
  constexpr Size2(std::int64_t height, std::int64_t width) noexcept : h(height), w(width) {}
  constexpr bool operator==(const Size2&) const noexcept = default;
};

/// Three numbers for depth, height and width; a single number sets all.
struct Size3 {
  std::int64_t d, h, w;  ///< along the axes
  constexpr Size3(std::int64_t all) noexcept
      : d(all), h(all), w(all) {}  // NOLINT: meant to convert
  constexpr Size3(std::int64_t depth, std::int64_t height, std::int64_t width) noexcept
      : d(depth), h(height), w(width) {}
  constexpr bool operator==(const Size3&) const noexcept = default;
};

/// Type of kSamePadding.
struct SamePadding {};
/// Pads so that the result has the input's sizes; needs stride 1. If the total along an axis is
/// odd, the extra zero is added behind, below or to the right.
inline constexpr SamePadding kSamePadding;

/// Numbers of zeros on each side of a convolution's input. `Size` is Size2 or Size3.
template <class Size>
struct ConvPaddingOf {
  Size around = 0;    ///< zeros on both sides of each axis
  bool same = false;  ///< true: pad so that the sizes stay at stride 1
  constexpr ConvPaddingOf(std::int64_t all) noexcept : around(all) {}  // NOLINT: meant to convert
  /// Sets a number for each axis.
  template <class... Numbers>
  constexpr ConvPaddingOf(std::int64_t first, std::int64_t second, Numbers... more) noexcept
      : around(first, second, more...) {}
  constexpr ConvPaddingOf(SamePadding) noexcept : same(true) {}  // NOLINT: meant to convert
};
using ConvPadding = ConvPaddingOf<Size2>;   ///< for height and width, or for one axis
using ConvPadding3 = ConvPaddingOf<Size3>;  ///< for depth, height and width

struct Conv2dOptions {
  Size2 stride = 1;         ///< step of the kernel along height and width
  ConvPadding padding = 0;  ///< zeros around the input
  Size2 dilation = 1;       ///< distance between the kernel's taps
  std::int64_t groups = 1;  ///< channels are split into this many independent groups
  /// relu is fused: the same numbers as relu(conv2d(...)), in one pass. gelu_tanh takes a pass of
  /// its own.
  Activation activation = Activation::none;
};

/// Cross-correlation, which the field calls convolution:
/// y[n, k, p, q] = bias[k] + sum over c, r, s of
/// weight[k, c, r, s] * x[n, c', p*stride + r*dilation - padding, ...], where c' is channel c of
/// k's group.
/// x [n, c, h, w] (or [c, h, w]: one image, then the result is one too), weight
/// [k, c/groups, r, s], bias [k] or undefined; result [n, k, p, q] with
/// p = (h + padding around - dilation (r-1) - 1) / stride + 1.
/// Throws if groups does not divide c and k, if the kernel has no taps or is larger than the padded
/// input, or if an option or a side of the padded input is 2^31 or more.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;    ///< step of the kernel
  ConvPadding padding = 0;    ///< zeros at both ends of the input
  std::int64_t dilation = 1;  ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  Activation activation = Activation::none;  ///< applied to the result as rounded to 16 bits
};

/// Convolves along one axis: x [n, c, l] or [c, l], weight [k, c/groups, s] -> [n, k, q].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

struct Conv3dOptions {
  Size3 stride = 1;          ///< step of the kernel along depth, height and width
  ConvPadding3 padding = 0;  ///< zeros around the input
  Size3 dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  Activation activation = Activation::none;  ///< applied to the rounded result; relu is fused
};

/// Convolves volumes: x [n, c, d, h, w] or [c, d, h, w], weight [k, c/groups, t, r, s] -> [n, k, o,
/// p, q]. If the device's library has no such convolution, one of images takes its place. Its
/// channels are those of the t slices that a result reads, and they are copied for some of the
/// batch at a time.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv3dOptions& options = {});

struct ConvTranspose2dOptions {
  Size2 stride = 1;   ///< step of the kernel along the result
  Size2 padding = 0;  ///< removed from each side of the result
  Size2 output_padding =
      0;               ///< extra rows and columns below and to the right, < stride or dilation
  Size2 dilation = 1;  ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
};

/// The gradient of conv2d with respect to its input, as an op (a "deconvolution"):
/// x [n, k, p, q], weight [k, c/groups, r, s], bias [c] or undefined -> [n, c, h, w] with
/// h = (p-1) stride - 2 padding + dilation (r-1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

struct ConvTranspose1dOptions {
  std::int64_t stride = 1;          ///< step of the kernel along the result
  std::int64_t padding = 0;         ///< removed from both ends of the result
  std::int64_t output_padding = 0;  ///< extra positions at the end, < stride or dilation
  std::int64_t dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
};

/// Gradient of conv1d with respect to its input: x [n, k, q] or [k, q], weight [k, c/groups, s] ->
/// [n, c, l].
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});

struct ConvTranspose3dOptions {
  Size3 stride = 1;          ///< step of the kernel along the result
  Size3 padding = 0;         ///< removed from each side of the result
  Size3 output_padding = 0;  ///< extra positions at the end of each axis, < stride or dilation
  Size3 dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
};

/// Gradient of conv3d with respect to its input: x [n, k, o, p, q] or [k, o, p, q], weight [k,
/// c/groups, t, r, s] -> [n, c, d, h, w].
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose3dOptions& options = {});

/// Allows convolutions on CUDA devices to use faster algorithms whose order of summation changes
/// from run to run. Off by default. Applies to all threads, from the next plan on.
void allow_nondeterministic(bool on) noexcept;
/// Returns the setting of allow_nondeterministic().
bool nondeterministic_allowed() noexcept;

}  // namespace firn
