// Common part of reductions: the shapes of a reduction over some axes, and lines of a tensor.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/common.h"

namespace firn::ops {

/// The shapes and counts of a reduction of x over some axes.
struct Reduction {
  Axes axes;
  Shape kept;   ///< x's shape with size 1 at the reduced axes
  Shape shape;  ///< shape of the result
  std::int64_t count = 1;
  bool keepdims;

  Reduction(const char* op, const Tensor& x, const Axes& list, bool keep)
      : axes(normalize_axes(op, list, x.rank())), kept(x.shape()), keepdims(keep) {
    for (const std::int64_t a : axes) {
      count *= kept[static_cast<int>(a)];
      kept[static_cast<int>(a)] = 1;
    }
    if (keepdims) shape = kept;
    for (int i = 0; !keepdims && i < x.rank(); ++i)
      if (!axes.contains(i)) shape.push_back(kept[i]);
  }

  /// Gives axes and form as the attributes of `op`.
  void give(const char* op) const {
    if (autograd::wants_attributes()) [[unlikely]]
      autograd::attributes(op, {{"axes", axes}, {"keepdims", keepdims}});
  }
  /// Throws if there is nothing to reduce.
  void require_elements(const char* op, const Tensor& x) const {
    FIRN_CHECK(count > 0, op, "check that the tensor is not empty",
               "nothing to compare: {} over axes {} has no elements", describe(x), axes);
  }
  /// Returns t, of the result's shape and any strides, with the reduced axes back at size 1.
  Tensor restore(const Tensor& t) const {
    Strides strides;
    for (int i = 0, j = 0; i < kept.size(); ++i) {
      const bool gone = axes.contains(i);
      strides.push_back(gone ? 0 : t.strides()[j]);
      if (keepdims || !gone) ++j;
    }
    return t.as_strided(kept, strides);
  }
  /// Returns restore(t), repeated along the reduced axes to x's shape.
  Tensor spread(const Tensor& t, const Shape& full) const {
    const Tensor r = restore(t);
    return r.as_strided(full, r.strides());
  }
  /// spread() in recorded operations.
  Tensor spread_in_graph(const Tensor& t, const Shape& full) const {
    return expand(reshape(t, kept), full);
  }
  /// Returns x with the axes that stay first, and the reduced ones as one last axis.
  Tensor lines(const Tensor& x) const {
    Axes order;
    Shape merged;
    for (int i = 0; i < x.rank(); ++i)
      if (!reduces(i)) order.push_back(i), merged.push_back(x.shape()[i]);
    merged.push_back(count);
    for (int i = 0; i < x.rank(); ++i)
      if (reduces(i)) order.push_back(i);
    return reshape(permute(x, order), merged);
  }
  /// Returns a tensor of lines() seen with x's shape.
  Tensor unline(const Tensor& t, const Shape& full) const {
    Shape split;
    Axes back = Dims::filled(full.size(), 0);
    for (const bool reduced : {false, true})
      for (int i = 0; i < full.size(); ++i)
        if (reduces(i) == reduced) back[i] = split.size(), split.push_back(full[i]);
    return permute(reshape(t, split), back);
  }
  bool reduces(int axis) const { return axes.contains(axis); }
};

/// Returns the axis of lines of x; a scalar has one of size 1.
inline int line_axis(const char* op, const Tensor& x, std::int64_t axis) {
  require_computed(op, x);
  return normalize_axis(op, axis, std::max(x.rank(), 1));
}
/// Returns x with at least one axis.
inline Tensor as_lines(const Tensor& x) { return x.rank() == 0 ? unsqueeze(x, 0) : x; }

/// Returns t with at least one axis, as a view that is not recorded.
inline Tensor lines_of(const Tensor& t) { return t.rank() == 0 ? t.as_strided({1}, {1}) : t; }

/// Returns `count` elements of t from `start` on along an axis: a view, not recorded.
inline Tensor part(const Tensor& t, int axis, std::int64_t start, std::int64_t count) {
  Shape shape = t.shape();
  shape[axis] = count;
  return t.as_strided(shape, t.strides(), start * t.strides()[axis]);
}

/// Returns t with -inf as the lowest finite number, so that -inf minus it is not NaN.
inline Tensor finite_below(const Tensor& t) {
  return clamp(t, -max_of(t.dtype()), std::numeric_limits<double>::infinity());
}
/// Returns the product of all elements before (or after) each one along `axis`, in the compute
/// dtype.
Tensor exclusive_products(const Tensor& x, int axis, bool after, Stream stream);

}  // namespace firn::ops
