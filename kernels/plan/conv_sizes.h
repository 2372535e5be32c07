// The sizes of a convolution by name, for every backend.
#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "kernels/math/macros.h"

namespace firn::kernels {

/// Of x [n, c, h, w], w [k, c/groups, r, s] and y [n, k, p, q].
struct ConvSizes {
  std::int64_t n, c, h, w;  ///< the input
  std::int64_t k, r, s;     ///< channels out, taps down and across
  std::int64_t p, q;        ///< the output
  ConvGeometry geometry;

  static ConvSizes of(const ConstView& x, const ConstView& w, const ConstView& y,
                      const ConvGeometry& geometry) {
    return {x.shape[0], x.shape[1], x.shape[2], x.shape[3], w.shape[0],
            w.shape[2], w.shape[3], y.shape[2], y.shape[3], geometry};
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
  std::int64_t column() const noexcept { return r * s * channels(); }  ///< inputs of one output
  std::int64_t image_work() const noexcept { return p * q * k * column(); }  ///< multiplications
  bool depthwise() const noexcept { return c == groups() && k == groups() && c > 1; }

  /// Elements from one row of columns to the next: all groups, padded to a multiple of 16 bytes,
  /// because GEMMs over unaligned rows are several times slower.
  std::int64_t column_stride(DType dtype) const noexcept {
    const auto unit = static_cast<std::int64_t>(16 / size_of(dtype));
    return math::ceil_div(groups() * column(), unit) * unit;
  }
};

}  // namespace firn::kernels
