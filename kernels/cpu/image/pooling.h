// Windows over images, for pooling forward and backward: how they lie, and tiles of positions.
//
// Spans run along the channels: a window is a few rows, which are folded in registers. In row-major
// images they run along the width: one tap of all windows of a row is a span. Adaptive windows
// differ in their sizes, so those of row-major images are folded one by one.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/image/image_rows.h"
#include "kernels/pool.h"

namespace firn::kernels::cpu::FIRN_ISA {

using math::Range;
using math::WindowAxis;
using tiles::Mask;
using tiles::Tile;

/// Images and the windows over them.
struct Pooling {
  WindowAxis h, w;
  bool count_padding;
  bool by_width;   ///< spans run along the width
  bool by_window;  ///< and windows are adaptive
  /// Each window's positions along the width (forward, or by window), or each position's windows
  /// (backward).
  std::vector<Range> across;
  std::vector<std::int64_t> widths;  ///< each window's factor of the divisor

  Pooling(const PoolWindows& windows, const Shape& in, const Shape& out, const ConstView& written)
      : h(axis_of(windows, 0, in[2], out[2])),
        w(axis_of(windows, 1, in[3], out[3])),
        count_padding(windows.count_padding) {
    // Small windows of many channels are folded faster side by side, though channels are far apart.
    constexpr std::int64_t kFewChannels = 16, kWide = 8;
    by_width = along_width(written);
    by_window = by_width && w.adaptive && (in[1] < kFewChannels || w.in >= kWide * w.out);
    if (w.adaptive && !by_window) by_width = false;
    for (std::int64_t j = 0; j < w.out; ++j) widths.push_back(w.divisor(j, count_padding));
  }

  /// Adaptive windows of one size are windows with a stride.
  static WindowAxis axis_of(const PoolWindows& windows, int axis, std::int64_t in,
                            std::int64_t out) {
    if (windows.adaptive && in % out == 0) return {in, out, in / out, in / out};
    return window_axis(windows, axis, in, out);
  }

  void find_positions() {
    for (std::int64_t j = 0; j < w.out; ++j) across.push_back(w.positions(j));
  }
  void find_windows() {
    for (std::int64_t position = 0; position < w.in; ++position)
      across.push_back(w.windows(position));
  }

  /// Divides the sums of n windows (i, j), (i, j + 1), ... by their divisors.
  template <class A>
  void divide(const A* sums, std::int64_t i, std::int64_t j, std::int64_t n, A* means) const {
    const std::int64_t height = h.divisor(i, count_padding);
    const std::int64_t* const width = widths.data() + j;
    for (std::int64_t e = 0; e < n; ++e) means[e] = sums[e] / static_cast<A>(height * width[e]);
  }
  std::int64_t divisor(std::int64_t i, std::int64_t j) const {
    return h.divisor(i, count_padding) * widths[static_cast<std::size_t>(j)];
  }
  /// Approximate number of a window's elements in the image.
  std::int64_t window_size() const { return along(h) * along(w); }
  /// Approximate number of windows that hold a position.
  std::int64_t windows_at() const {
    return (along(h) * h.out / h.in + 1) * (along(w) * w.out / w.in + 1);
  }
  static std::int64_t along(const WindowAxis& a) {
    return a.adaptive ? a.in / a.out + 1 : std::min(a.size, a.in);
  }
};

/// Adjacent positions, one for each lane of a tile of A.
template <class A>
using Lanes = typename Mask<A>::Vec;
template <class A>
Lanes<A> load_lanes(const std::int32_t* index) {
  Lanes<A> k;
  if constexpr (sizeof(typename Mask<A>::Word) == sizeof(std::int32_t)) {
    std::memcpy(&k, index, sizeof k);
  } else {
    for (int l = 0; l < Tile<A>::size; ++l) k[l] = index[l];
  }
  return k;
}
template <class A>
void store_lanes(Lanes<A> k, std::int32_t* index) {
  if constexpr (sizeof(typename Mask<A>::Word) == sizeof(std::int32_t)) {
    std::memcpy(index, &k, sizeof k);
  } else {
    for (int l = 0; l < Tile<A>::size; ++l) index[l] = static_cast<std::int32_t>(k[l]);
  }
}
template <class A>
Lanes<A> all_lanes(std::int64_t position) {
  return static_cast<typename Mask<A>::Word>(position) - Lanes<A>{};
}

}  // namespace firn::kernels::cpu::FIRN_ISA
