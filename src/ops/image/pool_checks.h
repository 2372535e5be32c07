// Checks of pooling windows. Pooling that is made of other pooling checks first, so that an Error
// names the function that was called.
#pragma once

#include <cstdint>

#include "ops/common.h"

namespace firn::ops {

/// The hint if pooling other than that of maxima has a dilation.
inline constexpr const char* kNoGaps = "only windows of max pooling may have gaps";

/// Checks the windows along one axis, "depth", "height" or "width", and returns their number. A
/// stride of 0 becomes the window.
inline std::int64_t windows_along(const char* op, const char* axis, std::int64_t in,
                                  std::int64_t window, std::int64_t& stride, std::int64_t padding,
                                  std::int64_t dilation, bool ceil_mode) {
  if (stride == 0) stride = window;
  FIRN_CHECK(window > 0 && stride > 0 && dilation > 0 && window <= kMostPositions &&
                 stride <= kMostPositions && dilation <= kMostPositions,
             op, "sizes count positions from 1",
             "along the {}: window {}, stride {} and dilation {} must be positive (and fit in 32 "
             "bits)",
             axis, window, stride, dilation);
  FIRN_CHECK(padding >= 0 && padding <= window / 2, op, "pad() takes any number of zeros",
             "along the {}: padding {} is not between 0 and half of the window, {}", axis, padding,
             window / 2);
  const std::int64_t room =
      in + 2 * padding - dilation * (window - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  FIRN_CHECK(
      room >= 0, op, "take a smaller window, or pad",
      "along the {}: a window of {} positions, {} apart, is larger than the image of {} with "
      "{} of padding on both sides",
      axis, window, dilation, in, padding);
  std::int64_t out = room / stride + 1;
  // The last window begins in the image or in the padding before it.
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  return out;
}

/// Throws if an image of `h` by `w` has too many positions for max pooling, which notes one.
inline void require_positions(const char* op, std::int64_t h, std::int64_t w) {
  FIRN_CHECK(h <= kMostPositions / w, op, "pool parts of it",
             "the positions of an image of {} x {} do not fit in 32 bits", h, w);
}

}  // namespace firn::ops
