// A kernel's walk over views of one shape that differ in strides: it merges axes, and gives the
// runs along the innermost.
#pragma once

#include <algorithm>
#include <cstdint>

#include "firn/shape.h"

namespace firn::kernels {

/// Up to five views of one shape. Axes are merged if every view allows it; the first view's
/// innermost axis is last.
class Walk {
 public:
  static constexpr int kMaxViews = 5;

  Walk(const Shape& shape, const Strides* const* strides, int views);

  int views() const noexcept { return views_; }
  int rank() const noexcept { return rank_; }
  std::int64_t size(int axis) const noexcept { return sizes_[axis]; }
  std::int64_t stride(int view, int axis) const noexcept { return strides_[view][axis]; }
  /// Stride of a view along a run.
  std::int64_t inner_stride(int view) const noexcept { return strides_[view][rank_ - 1]; }
  /// True if a view repeats one element.
  bool constant(int view) const noexcept;
  /// True if a view's elements follow each other without gaps, in the order of the walk.
  bool dense(int view) const noexcept { return rank_ == 1 && strides_[view][0] == 1; }

  /// Calls fn(offsets, n) for runs of at most `limit` elements that cover the linear range [begin,
  /// end). offsets[v] is the start of the run in view v, in elements.
  template <class Fn>
  void runs(std::int64_t begin, std::int64_t end, std::int64_t limit, Fn&& fn) const {
    std::int64_t position[kMaxRank];
    std::int64_t offsets[kMaxViews] = {};
    std::int64_t rest = begin;
    for (int d = rank_ - 1; d >= 0; --d) {
      position[d] = rest % sizes_[d];
      rest /= sizes_[d];
      for (int v = 0; v < views_; ++v) offsets[v] += position[d] * strides_[v][d];
    }
    const int inner = rank_ - 1;
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t n = std::min({sizes_[inner] - position[inner], end - i, limit});
      fn(static_cast<const std::int64_t*>(offsets), n);
      i += n;
      position[inner] += n;
      for (int v = 0; v < views_; ++v) offsets[v] += n * strides_[v][inner];
      for (int d = inner; d > 0 && position[d] == sizes_[d]; --d) {
        position[d] = 0;
        ++position[d - 1];
        for (int v = 0; v < views_; ++v) {
          offsets[v] += strides_[v][d - 1] - sizes_[d] * strides_[v][d];
        }
      }
    }
  }

 private:
  int rank_ = 0;
  int views_;
  std::int64_t sizes_[kMaxRank];
  std::int64_t strides_[kMaxViews][kMaxRank];
};

}  // namespace firn::kernels
