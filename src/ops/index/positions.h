// Common part of operations at positions: checks of their operands, and elements that are added.
#pragma once

#include "ops/common.h"

namespace firn::ops {

/// Throws unless index and x are on one device.
inline void require_same_device(const char* op, const Tensor& x, const Tensor& index) {
  FIRN_CHECK(x.device() == index.device(), op, "move one of them: index.to(device)",
             "devices differ: {} and index {}", describe(x), describe(index));
}

/// The operands of an operation that writes at positions: src has the index's shape, and all have
/// at least one axis.
struct Placed {
  Tensor x, index, src;
  int axis;
  bool scalar;  ///< x had no axis

  /// The result y, which has the shape of `x` here.
  Tensor back(const Tensor& y) const { return scalar ? squeeze(y, 0) : y; }
};
/// Checks that the index has x's rank, and is at most as large as src, and as x on the other axes.
Placed elements_at(const char* op, const Tensor& x, std::int64_t axis, const Tensor& index,
                   const Tensor& src);
/// Checks one slice of src for each element of a 1-D index, which is repeated along the other axes.
Placed slices_at(const char* op, const Tensor& x, std::int64_t axis, const Tensor& index,
                 const Tensor& src);

/// Throws if x is undefined or bool.
void require_numbers(const char* op, const Tensor& x);
/// Returns x with src added at index, which has src's shape; both have x's rank.
Tensor add_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src, int axis);
/// Returns x with src at index; the last element with one target stays.
Tensor put_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src, int axis);

}  // namespace firn::ops
