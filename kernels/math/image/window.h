// Pooling windows along one axis: the positions that a window spans, and the windows that hold a
// position. All is computed in integers, so that all backends agree.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// begin, begin + 1 (or + a dilation), ... below end; empty if end <= begin.
struct Range {
  std::int64_t begin, end;
};

struct WindowAxis {
  std::int64_t in = 1, out = 1;  ///< positions, windows
  std::int64_t size = 1, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false;  ///< `in` and `out` alone define the windows

  /// The first position of window i; negative in the padding.
  FIRN_HD constexpr std::int64_t first(std::int64_t i) const { return i * stride - padding; }
  /// The part of the image that window i spans: every `dilation`-th position of the range.
  FIRN_HD constexpr Range positions(std::int64_t i) const {
    if (adaptive) return {floor_div(i * in, out), ceil_div((i + 1) * in, out)};
    const std::int64_t begin = first(i), end = begin + dilation * (size - 1) + 1;
    return {begin >= 0 ? begin : begin + dilation * ceil_div(-begin, dilation),
            end < in ? end : in};
  }
  /// The windows whose first and last positions enclose p; holds() tells which contain it.
  FIRN_HD constexpr Range windows(std::int64_t p) const {
    if (adaptive) return {floor_div(p * out, in), ceil_div((p + 1) * out, in)};
    const std::int64_t at = p + padding, end = floor_div(at, stride) + 1;
    return {ceil_div(at - dilation * (size - 1), stride), end < out ? end : out};
  }
  FIRN_HD constexpr bool holds(std::int64_t i, std::int64_t p) const {
    return dilation == 1 || (p - first(i)) % dilation == 0;
  }
  /// The windows whose k-th position is in `among`, a part of the image (not adaptive).
  FIRN_HD constexpr Range windows_with(std::int64_t k, Range among) const {
    const std::int64_t shift = padding - k * dilation, last = among.end - 1 + shift;
    const std::int64_t end = last < 0 ? 0 : floor_div(last, stride) + 1;
    return {ceil_div(among.begin + shift, stride), end < out ? end : out};
  }
  /// The k for which the k-th position of some window is in the image (not adaptive).
  FIRN_HD constexpr Range taps() const {
    const std::int64_t before = -first(out - 1), last = in - 1 - first(0);
    const std::int64_t end = floor_div(last, dilation) + 1;
    return {ceil_div(before, dilation), end < size ? end : size};
  }
  /// True if no two windows share a position.
  FIRN_HD constexpr bool disjoint() const { return !adaptive && size <= stride && dilation == 1; }
  /// If windows are disjoint: window i's positions and those up to the next window, so that every
  /// position of the image belongs to one window.
  FIRN_HD constexpr Range territory(std::int64_t i) const {
    return {i == 0 ? 0 : first(i), i + 1 == out ? in : first(i + 1)};
  }
  /// The divisor of window i's mean: the number of its positions in the image, or in the padded
  /// image if `padded`. Dilation is 1.
  FIRN_HD constexpr std::int64_t divisor(std::int64_t i, bool padded) const {
    if (adaptive || !padded) {
      const Range r = positions(i);
      return r.end - r.begin;
    }
    const std::int64_t room = in + padding - first(i);
    return size < room ? size : room;
  }
};

}  // namespace firn::math
