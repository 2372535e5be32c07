// Convolutions. Shapes are [batch, channels, height, width]. Results are channels-last in memory
// (ops.h), and channels-last operands are not copied. Sums of f16 and bf16 run in f32. Invalid
// arguments throw Error with the op, the values and a hint.
#pragma once

#include <cstdint>

#include "firn/ops/ops.h"
#include "firn/tensor.h"

namespace firn {

/// A pair of numbers for height and width; a single number sets both.
struct Size2 {
  std::int64_t h, w;                                                 ///< height and width
  constexpr Size2(std::int64_t both) noexcept : h(both), w(both) {}  // NOLINT: meant to convert
  constexpr Size2(std::int64_t height, std::int64_t width) noexcept : h(height), w(width) {}
  constexpr bool operator==(const Size2&) const noexcept = default;
};

/// How many zeros are added on each side of a convolution's input.
struct ConvPadding {
  Size2 around = 0;   ///< zeros above and below, left and right
  bool same = false;  ///< as many zeros as keep height and width at stride 1
  constexpr ConvPadding(std::int64_t both) noexcept : around(both) {}  // NOLINT: meant to convert
  constexpr ConvPadding(std::int64_t h, std::int64_t w) noexcept : around(h, w) {}
  /// What kSamePadding is.
  static constexpr ConvPadding as_same() noexcept {
    ConvPadding p(0);
    p.same = true;
    return p;
  }
};
/// Pads so that the result has the input's height and width; needs stride 1. If the total is odd,
/// the extra zero is added below or to the right.
inline constexpr ConvPadding kSamePadding = ConvPadding::as_same();

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
/// Throws if groups does not divide c and k, if the kernel is larger than the padded input, or if a
/// side of the padded input has 2^31 positions or more.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;    ///< step of the kernel
  ConvPadding padding = 0;    ///< its width
  std::int64_t dilation = 1;  ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  Activation activation = Activation::none;  ///< applied to the result
};

/// The same along one axis: x [n, c, l] or [c, l], weight [k, c/groups, s] -> [n, k, q].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

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

/// Allows convolutions on CUDA devices to use faster algorithms whose order of summation changes
/// from run to run. Off by default. Applies to all threads, from the next plan on.
void allow_nondeterministic(bool on) noexcept;
/// What allow_nondeterministic() was given.
bool nondeterministic_allowed() noexcept;

}  // namespace firn
