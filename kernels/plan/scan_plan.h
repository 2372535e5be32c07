// The walk of a scan over its operands: line by line, or over runs of adjacent lines ("columns").
#pragma once

#include <algorithm>
#include <cstdint>

#include "firn/view.h"
#include "kernels/plan/walk.h"

namespace firn::kernels {

inline constexpr int kScanViews = 4;  ///< result, two operands, positions

/// The views of a scan, all of one shape; the first is the result. Views that are absent repeat
/// the first.
struct ScanViews {
  const Strides* strides[kScanViews];
};

struct ScanPlan {
  std::int64_t length;                   ///< elements of a line
  std::int64_t step[kScanViews];         ///< strides along a line
  std::int64_t width = 1;                ///< lines side by side
  std::int64_t column[kScanViews] = {};  ///< strides from one such line to the next
  std::int64_t groups;                   ///< number of such runs of lines
  Shape outer;                           ///< the shape with size 1 along lines and columns

  /// If fewer than `least` lines lie side by side, they are scanned one by one.
  ScanPlan(const Shape& shape, int axis, const ScanViews& views, std::int64_t least)
      : length(shape[axis]), outer(shape) {
    const auto apart = [&](int d) {
      std::int64_t sum = 0;
      for (const Strides* s : views.strides) sum += (*s)[d];
      return sum;
    };
    for (int v = 0; v < kScanViews; ++v) step[v] = (*views.strides[v])[axis];
    outer[axis] = 1;
    // Finds lines side by side, from the axis whose elements are closest, outwards as memory
    // allows.
    for (;;) {
      int next = -1;
      for (int d = 0; d < shape.size(); ++d) {
        if (outer[d] == 1 || apart(d) >= apart(axis)) continue;
        if (width == 1 ? next < 0 || apart(d) < apart(next) : follows(views, d)) next = d;
      }
      if (next < 0) break;
      for (int v = 0; v < kScanViews && width == 1; ++v) column[v] = (*views.strides[v])[next];
      width *= outer[next];
      outer[next] = 1;
    }
    if (width < least) {
      outer = shape;
      outer[axis] = 1;
      width = 1;
    }
    groups = outer.product();
  }

  /// Returns the walk over the groups; its offsets are those of a group's first element.
  Walk walk(const ScanViews& views) const {
    Strides kept[kScanViews];
    const Strides* lists[kScanViews];
    for (int v = 0; v < kScanViews; ++v) {
      kept[v] = *views.strides[v];
      for (int d = 0; d < outer.size(); ++d)
        if (outer[d] == 1) kept[v][d] = 0;
      lists[v] = &kept[v];
    }
    return Walk(outer, lists, kScanViews);
  }

 private:
  /// True if axis d continues the columns so far in every view.
  bool follows(const ScanViews& views, int d) const {
    for (int v = 0; v < kScanViews; ++v)
      if ((*views.strides[v])[d] != column[v] * width) return false;
    return true;
  }
};

}  // namespace firn::kernels
