// The sizes of a convolution by name, for every backend.
#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "kernels/math/macros.h"

namespace firn::kernels {

/// Sizes of x [n, c, h, w], w [k, c/groups, r, s] and y [n, k, p, q], or of volumes x [n, c, d, h,
/// w], w [k, c/groups, t, r, s] and y [n, k, o, p, q].
struct ConvSizes {
  std::int64_t n, c, h, w;  ///< sizes of the input
  std::int64_t k, r, s;     ///< channels out, taps down and across
  std::int64_t p, q;        ///< sizes of the output
  ConvGeometry geometry;
  bool volumes = false;
  std::int64_t d = 1, t = 1, o = 1;  ///< sizes along depth: the input, taps, the output

  static ConvSizes of(const ConstView& x, const ConstView& w, const ConstView& y,
                      const ConvGeometry& geometry) {
    const bool volumes = x.shape.size() == 5;
    const int i = volumes ? 3 : 2;
    ConvSizes z{x.shape[0], x.shape[1],     x.shape[i], x.shape[i + 1], w.shape[0],
                w.shape[i], w.shape[i + 1], y.shape[i], y.shape[i + 1], geometry};
    if (!volumes) return z;
    z.volumes = true;
    z.d = x.shape[2];
    z.t = w.shape[2];
    z.o = y.shape[2];
    return z;
  }
  ConvSizes with_images(std::int64_t count) const {
    ConvSizes z = *this;
    z.n = count;
    return z;
  }

  std::int64_t groups() const noexcept { return geometry.groups; }
  std::int64_t channels() const noexcept { return c / groups(); }  ///< input channels of a group
  std::int64_t kernels() const noexcept { return k / groups(); }   ///< output channels of a group
  std::int64_t positions() const noexcept { return p * q; }        ///< output pixels of an image
  std::int64_t rows() const noexcept { return n * p * q; }
  std::int64_t column() const noexcept { return t * r * s * channels(); }  ///< inputs of one output
  /// Number of slices from the first that a result reads to the last.
  std::int64_t depth_reach() const noexcept { return geometry.depth.dilation * (t - 1) + 1; }
  std::int64_t image_inputs() const noexcept { return c * d * h * w; }
  std::int64_t image_outputs() const noexcept { return k * o * p * q; }
  /// Number of multiplications of an image or a volume.
  std::int64_t image_work() const noexcept { return image_outputs() * column(); }
  bool depthwise() const noexcept { return c == groups() && k == groups() && c > 1; }

  /// Distance in elements from one row of columns to the next: all groups, padded to a multiple of
  /// 16 bytes, because GEMMs over unaligned rows are several times slower.
  std::int64_t column_stride(DType dtype) const noexcept {
    const auto unit = static_cast<std::int64_t>(16 / size_of(dtype));
    return math::ceil_div(groups() * column(), unit) * unit;
  }
};

}  // namespace firn::kernels
