// Views of tensors as batches of images [n, c, h, w], as the kernels of pooling and resampling
// require: a missing axis gets size 1.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "firn/view.h"
#include "ops/common.h"

namespace firn::ops {

/// Views a tensor as images: which axes of size 1 it inserts.
struct AsImages {
  bool batched = true;     ///< else [c, ...]: one image
  bool has_height = true;  ///< else [.., c, l]: one row

  /// Returns the tensor's view with all four axes.
  template <class V>
  V operator()(V v) const {
    if (!batched) {
      v.strides.insert(0, 0);
      v.shape.insert(0, 1);
    }
    if (!has_height) {
      v.strides.insert(2, 0);
      v.shape.insert(2, 1);
    }
    return v;
  }
  ConstView view(const Tensor& t) const { return (*this)(t.view()); }
  View mutable_view(const Tensor& t) const { return (*this)(t.mutable_view()); }

  /// Returns a new tensor of `h` by `w` images with n, c and memory format of `like`, and with the
  /// axes that the operand has. Throws Error naming `op` if no memory could hold it.
  Tensor empty(const char* op, const ConstView& like, std::int64_t h, std::int64_t w) const {
    Shape shape = {like.shape[0], like.shape[1], h, w};
    checked_elements(op, shape);
    const Tensor images =
        firn::empty(shape, like.dtype, like.device, format_of(like.shape, like.strides));
    if (batched && has_height) return images;
    Strides strides = images.strides();
    if (!has_height) {
      shape.erase(2);
      strides.erase(2);
    }
    if (!batched) {
      shape.erase(0);
      strides.erase(0);
    }
    return images.as_strided(shape, strides);
  }
};

/// Checks that x is a floating tensor with the rank of images (without height: of rows) or one
/// less, and views it as images. Sizes other than n and c must be positive and fit in 32 bits.
inline AsImages as_images(const char* op, const Tensor& x, bool has_height) {
  require_floating(op, x);
  const int rank = has_height ? 4 : 3;
  FIRN_CHECK(x.rank() == rank || x.rank() == rank - 1, op, "reshape it",
             "x is [{}] or without n, got {}", has_height ? "n, c, h, w" : "n, c, l", describe(x));
  for (int axis = x.rank() - (has_height ? 2 : 1); axis < x.rank(); ++axis) {
    FIRN_CHECK(x.shape()[axis] > 0, op, "only the batch and the channels may be empty",
               "x {} has no positions", describe(x));
    FIRN_CHECK(x.shape()[axis] <= kMostPositions, op, "take parts of it",
               "the positions along an axis of x {} do not fit in 32 bits", describe(x));
  }
  return {x.rank() == rank, has_height};
}

/// Checks the size of the resulting images.
inline void require_image_size(const char* op, std::int64_t h, std::int64_t w) {
  FIRN_CHECK(h > 0 && w > 0 && h <= kMostPositions && w <= kMostPositions, op,
             "give the size of the result",
             "out is {} x {}, which must be positive (and fit in 32 bits)", h, w);
}
/// Checks the size of the resulting volumes.
inline void require_volume_size(const char* op, std::int64_t d, std::int64_t h, std::int64_t w) {
  FIRN_CHECK(
      d > 0 && h > 0 && w > 0 && d <= kMostPositions && h <= kMostPositions && w <= kMostPositions,
      op, "give the size of the result",
      "out is {} x {} x {}, which must be positive (and fit in 32 bits)", d, h, w);
}

}  // namespace firn::ops
