// Pooling and resampling of images [n, c, h, w] (or [c, h, w]; the result has the same rank). The
// memory format (channels_last() in copy.h) is kept; sums of f16 and bf16 run in f32. Invalid
// arguments throw Error.
#pragma once

#include <concepts>
#include <cstdint>

#include "firn/ops/conv.h"
#include "firn/tensor.h"

namespace firn {

struct Pool2dOptions {
  Size2 stride = 0;           ///< 0: the window's size
  Size2 padding = 0;          ///< at most half of the window; never the maximum, and 0 in means
  Size2 dilation = 1;         ///< max_pool2d only
  bool ceil_mode = false;     ///< a last window that begins inside may extend past the edge
  bool count_padding = true;  ///< avg_pool2d: padding counts in the divisor
};

/// Largest value in each window; NaN propagates; the gradient goes to the first largest.
Tensor max_pool2d(const Tensor& x, Size2 window, const Pool2dOptions& options = {});
/// Mean of each window.
Tensor avg_pool2d(const Tensor& x, Size2 window, const Pool2dOptions& options = {});
/// out.h x out.w windows that cover the image: window i spans floor(i h / out.h) to
/// ceil((i+1) h / out.h). Throws unless out is positive.
Tensor adaptive_max_pool2d(const Tensor& x, Size2 out);
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 out);
/// Mean over height and width: [n, c, h, w] -> [n, c].
Tensor global_avg_pool2d(const Tensor& x);
/// Pool along one axis of x [n, c, l], with the options for the width.
Tensor max_pool1d(const Tensor& x, std::int64_t window, const Pool2dOptions& options = {});
Tensor avg_pool1d(const Tensor& x, std::int64_t window, const Pool2dOptions& options = {});

/// adaptive_max_pool2d() and adaptive_avg_pool2d() along one axis: x [n, c, l] -> [n, c, out].
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t out);
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t out);

/// Options as in Pool2dOptions, for volumes.
struct Pool3dOptions {
  Size3 stride = 0;           ///< 0: the window's size
  Size3 padding = 0;          ///< at most half of the window; never the maximum, and 0 in means
  Size3 dilation = 1;         ///< max_pool3d only
  bool ceil_mode = false;     ///< a last window that begins inside may extend past the edge
  bool count_padding = true;  ///< avg_pool3d: padding counts in the divisor
};
/// Pooling of volumes x [n, c, d, h, w] -> [n, c, o, p, q], or without n. The windows are pooled
/// along height and width, then along depth, which gives the same maxima and their first position.
/// Means of f16 and bf16 are rounded once.
Tensor max_pool3d(const Tensor& x, Size3 window, const Pool3dOptions& options = {});
Tensor avg_pool3d(const Tensor& x, Size3 window, const Pool3dOptions& options = {});
/// Windows that cover the volume, as those of adaptive_max_pool2d() along each axis.
Tensor adaptive_max_pool3d(const Tensor& x, Size3 out);
Tensor adaptive_avg_pool3d(const Tensor& x, Size3 out);

/// (sum of x^p over each window)^(1/p). p = 1 gives sums, a large p almost maxima; a negative sum
/// gives NaN unless 1/p is whole, and a sum of 0 has the gradient 0. Padding and dilation must keep
/// their defaults. As in PyTorch, a window that ceil_mode lets extend past the edge is scaled up to
/// a whole one. Throws Error unless p is finite and above 0.
Tensor lp_pool2d(const Tensor& x, double p, Size2 window, const Pool2dOptions& options = {});
/// lp_pool2d() along one axis, with the options for the width.
Tensor lp_pool1d(const Tensor& x, double p, std::int64_t window, const Pool2dOptions& options = {});

/// Source of a new position's value. `i` is its index, `in` and `out` the sizes of an axis. An axis
/// that keeps its size keeps its values.
enum class Upsampling : std::uint8_t {
  nearest,             ///< the source floor(i in / out)
  linear,              ///< the two sources around it on each axis, weighted by their distance
  bicubic,             ///< the four around it (Keys 1981, a = -0.75); beyond the edge, its value
  nearest_exact,       ///< the source floor((i + 0.5) in / out), in the middle of its range
  bilinear = linear,   ///< linear, as PyTorch calls it for images
  trilinear = linear,  ///< linear, as PyTorch calls it for volumes
};
const char* to_string(Upsampling how) noexcept;
struct UpsampleOptions {
  /// The first and last positions of the result are those of x: the source position is
  /// i (in - 1) / (out - 1), else (i + 0.5) in / out - 0.5. For linear and bicubic.
  bool align_corners = false;
};
/// x [n, c, h, w] resized to out.h x out.w: sizes, not factors, as {64, 64}; nn::Upsample(2) makes
/// x twice as large. linear clamps source positions at the edges. The sizes give the positions
/// (PyTorch's recompute_scale_factor = true), and are computed in integers. Throws Error if
/// align_corners is set for a nearest source.
Tensor upsample2d(const Tensor& x, Size2 out, Upsampling how = Upsampling::nearest,
                  const UpsampleOptions& options = {});
/// One number could be a size or a factor.
template <std::integral Number, class... More>
Tensor upsample2d(const Tensor&, Number, const More&...) = delete;  // {h, w}, or nn::Upsample(2)
/// Resizes along one axis: x [n, c, l] -> [n, c, out]; `out` is the size. Not bicubic.
Tensor upsample1d(const Tensor& x, std::int64_t out, Upsampling how = Upsampling::nearest,
                  const UpsampleOptions& options = {});
/// Resizes volumes: x [n, c, d, h, w] -> [n, c, out.d, out.h, out.w]. It goes along height and
/// width, then along depth; values of f16 and bf16 are rounded once. Not bicubic.
Tensor upsample3d(const Tensor& x, Size3 out, Upsampling how = Upsampling::nearest,
                  const UpsampleOptions& options = {});
template <std::integral Number, class... More>
Tensor upsample3d(const Tensor&, Number, const More&...) = delete;  // {d, h, w}, or nn::Upsample3d

}  // namespace firn
