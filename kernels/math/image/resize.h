// Sources of resized images along one axis: the positions that an output reads, with their weights,
// and the outputs that read a position. Positions are computed in integers, so that all backends
// agree. firn/ops/pool.h has the formulas.
#pragma once

#include <cstdint>

#include "kernels/math/image/window.h"
#include "kernels/math/macros.h"

namespace firn::math {

enum class ResizeKind : std::uint8_t { nearest, nearest_exact, linear, cubic };

/// An axis of `in` positions that is resized to `out`.
struct ResizeAxis {
  std::int64_t in = 1, out = 1;
  ResizeKind kind = ResizeKind::nearest;
  bool align_corners = false;

  FIRN_HD constexpr ResizeAxis(std::int64_t from, std::int64_t to, ResizeKind how, bool align)
      : in(from),
        out(to),
        kind(from == to ? ResizeKind::nearest : how),  // keeps its values
        align_corners(align) {}

  /// Number of sources of an output.
  FIRN_HD constexpr int taps() const {
    return kind == ResizeKind::cubic ? 4 : kind == ResizeKind::linear ? 2 : 1;
  }

  // ---- One source ----

  FIRN_HD constexpr std::int64_t nearest(std::int64_t i) const {
    return kind == ResizeKind::nearest ? floor_div(i * in, out)
                                       : floor_div((2 * i + 1) * in, 2 * out);
  }
  /// The outputs whose nearest source is p.
  FIRN_HD constexpr Range nearest_outputs(std::int64_t p) const {
    return {first_nearest(p), first_nearest(p + 1)};
  }

  // ---- Two sources or four ----

  /// The position of an output among the sources: low + part / divisor().
  struct Between {
    std::int64_t low, part;
  };
  FIRN_HD constexpr std::int64_t divisor() const {
    if (!align_corners) return 2 * out;
    return out > 1 ? out - 1 : 1;
  }
  FIRN_HD constexpr Between between(std::int64_t i) const {
    // i (in - 1) / (out - 1), or (i + 0.5) in/out - 0.5, times the divisor
    const std::int64_t at = align_corners ? i * (in - 1) : (2 * i + 1) * in - out;
    if (at < 0) return kind == ResizeKind::linear ? Between{0, 0} : Between{-1, at + divisor()};
    const std::int64_t low = floor_div(at, divisor());
    return {low, at - low * divisor()};
  }
  /// The k-th source.
  FIRN_HD constexpr std::int64_t source(const Between& b, int k) const {
    const std::int64_t p = b.low + k - (kind == ResizeKind::cubic ? 1 : 0);
    return p < 0 ? 0 : p < in ? p : in - 1;
  }
  /// Weight of the k-th source. A cubic one is Keys' with a = -0.75, in a form without
  /// cancellation.
  template <class V>
  FIRN_HD constexpr V weight(const Between& b, int k) const {
    const V t = static_cast<V>(b.part) / static_cast<V>(divisor());
    if (kind != ResizeKind::cubic) return k == 0 ? V(1) - t : t;
    const V rest = static_cast<V>(divisor() - b.part) / static_cast<V>(divisor());
    switch (k) {
      case 0:
        return V(-0.75) * t * rest * rest;
      case 1:
        return rest * (V(1) + t - V(1.25) * t * t);
      case 2:
        return t * (V(1) + rest - V(1.25) * rest * rest);
      default:
        return V(-0.75) * rest * t * t;
    }
  }
  /// Weight of source p in output i: at the edges, several sources are p.
  template <class V>
  FIRN_HD constexpr V weight_of(std::int64_t i, std::int64_t p) const {
    const Between b = between(i);
    V sum = 0;
    for (int k = 0; k < taps(); ++k)
      if (source(b, k) == p) sum += weight<V>(b, k);
    return sum;
  }
  /// The outputs that read source p.
  FIRN_HD constexpr Range outputs(std::int64_t p) const {
    const std::int64_t reach = taps() / 2;
    return {p == 0 ? 0 : first_from(p - reach), p + 1 == in ? out : first_from(p + reach)};
  }

 private:
  /// The first output whose nearest source is at least p.
  FIRN_HD constexpr std::int64_t first_nearest(std::int64_t p) const {
    return kind == ResizeKind::nearest ? ceil_div(p * out, in) : ceil_div(2 * p * out - in, 2 * in);
  }
  /// The first output whose `low` is at least p.
  FIRN_HD constexpr std::int64_t first_from(std::int64_t p) const {
    if (p >= in) return out;
    if (p < 0 || (p == 0 && kind == ResizeKind::linear)) return 0;
    if (!align_corners) return ceil_div((2 * p + 1) * out - in, 2 * in);
    if (p == 0) return 0;
    return out > 1 ? ceil_div(p * (out - 1), in - 1) : out;
  }
};

/// Interpolates two neighbours; `weight` is that of the second.
template <class V>
FIRN_HD constexpr V linear(V a, V b, V weight) {
  return (V(1) - weight) * a + weight * b;
}

/// Interpolates four neighbours; `down` and `right` are the weights of the lower and the right
/// ones.
template <class V>
FIRN_HD constexpr V bilinear(V a, V b, V c, V d, V down, V right) {
  return linear(linear(a, b, right), linear(c, d, right), down);
}

}  // namespace firn::math
