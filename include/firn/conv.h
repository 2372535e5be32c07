// Convolutions. Shapes are batch, channels, height, width; memory is channels-last (ops.h):
// results have that format, and operands that have it are not copied. f16 and bf16 are summed in
// f32. What breaks a rule throws Error naming op, values and a hint.
#pragma once

#include <cstdint>

#include "firn/ops.h"
#include "firn/tensor.h"

namespace firn {

/// Two numbers, of height and width; one stands for both.
struct Size2 {
  std::int64_t h, w;
  constexpr Size2(std::int64_t both) noexcept : h(both), w(both) {}  // NOLINT: meant to convert
  constexpr Size2(std::int64_t height, std::int64_t width) noexcept : h(height), w(width) {}
  constexpr bool operator==(const Size2&) const noexcept = default;
};

/// Zeros put around the input of a convolution.
struct ConvPadding {
  Size2 around = 0;
  bool same = false;
  constexpr ConvPadding(std::int64_t both) noexcept : around(both) {}  // NOLINT: meant to convert
  constexpr ConvPadding(std::int64_t h, std::int64_t w) noexcept : around(h, w) {}
  static constexpr ConvPadding as_same() noexcept {
    ConvPadding p(0);
    p.same = true;
    return p;
  }
};
/// As many zeros as keep height and width, with stride 1; an odd one goes below and to the right.
inline constexpr ConvPadding kSamePadding = ConvPadding::as_same();

struct Conv2dOptions {
  Size2 stride = 1;
  ConvPadding padding = 0;
  Size2 dilation = 1;     ///< distance between the kernel's taps
  std::int64_t groups = 1;  ///< channels in and out are cut in so many parts that do not mix
  /// relu is applied on the way out: the same numbers as relu(conv2d(...)), in one pass. gelu_tanh
  /// is a pass of its own.
  Activation activation = Activation::none;
};

/// Cross-correlation, as in the field: y[n, k, p, q] = bias[k] + sum over c, r, s of weight[k, c,
/// r, s] * x[n, c', p*stride + r*dilation - padding, ...], where c' is c within k's group.
/// x [n, c, h, w] (or [c, h, w]: one image, and so is the result), weight [k, c/groups, r, s], bias
/// [k] or undefined; result [n, k, p, q] with
/// p = (h + padding around - dilation (r-1) - 1) / stride + 1. Throws where groups divides c or k
/// not, or the kernel is larger than the padded input, or a side of that has 2^31 positions.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;
  ConvPadding padding = 0;  ///< its width
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  Activation activation = Activation::none;
};

/// The same along one axis: x [n, c, l] or [c, l], weight [k, c/groups, s] -> [n, k, q].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

struct ConvTranspose2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;  ///< taken off the result on every side
  Size2 output_padding =
      0;  ///< rows and columns more below and to the right, < stride or dilation
  Size2 dilation = 1;
  std::int64_t groups = 1;
};

/// The gradient of conv2d with respect to its input, as an op (a "deconvolution"):
/// x [n, k, p, q], weight [k, c/groups, r, s], bias [c] or undefined -> [n, c, h, w] with
/// h = (p-1) stride - 2 padding + dilation (r-1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

/// Whether convolutions on CUDA devices may take algorithms whose sums change their order from run
/// to run, where those are faster: off until it is allowed. For all threads, from the next plan on.
void allow_nondeterministic(bool on) noexcept;
bool nondeterministic_allowed() noexcept;

}  // namespace firn
