// Offsets of the elements of strided views, for threads that take them by number. Division
// dominates the cost: if all numbers fit in 31 bits, it is a multiplication by a constant made on
// the host.
#pragma once

#include <cstdint>

#include "firn/shape.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/plan/walk.h"

namespace firn::kernels::cuda {

/// Division of numbers below 2^31 by a divisor that the host knows, as a multiplication (Granlund
/// and Montgomery 1994).
struct Divisor {
  std::uint32_t factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) {  // in [1, 2^31]
    while ((std::uint64_t{1} << shift) < d) ++shift;
    const std::uint64_t excess = (std::uint64_t{1} << shift) - d;
    factor = static_cast<std::uint32_t>((excess << 32) / d + 1);
  }
  __device__ std::uint32_t divide(std::uint32_t n) const {
    return (__umulhi(n, factor) + n) >> shift;
  }
};

/// Nested axes, outermost first, with the strides of kViews views. They give the offset of element
/// i of the row-major order in each view.
template <int kViews>
class StridedAxes {
 public:
  StridedAxes() = default;
  explicit StridedAxes(const Walk& walk) {
    for (int d = 0; d < walk.rank(); ++d) {
      std::int64_t strides[kViews];
      for (int v = 0; v < kViews; ++v) strides[v] = walk.stride(v, d);
      push_back(walk.size(d), strides);
    }
    finish();
  }
  /// Adds an axis inside the existing ones. Call finish() after the last.
  void push_back(std::int64_t size, const std::int64_t (&strides)[kViews]) {
    sizes_[rank_] = size;
    for (int v = 0; v < kViews; ++v) strides_[v][rank_] = strides[v];
    ++rank_;
  }
  void finish() {
    std::int64_t count = 1, last[kViews] = {};
    for (int d = 0; d < rank_; ++d) {
      count *= sizes_[d];
      for (int v = 0; v < kViews; ++v) last[v] += (sizes_[d] - 1) * strides_[v][d];
    }
    small_ = count < kSmall;
    for (int v = 0; v < kViews; ++v) small_ = small_ && last[v] < kSmall;
    for (int d = 0; d < rank_ && small_; ++d) {
      if (sizes_[d] > 0) divisors_[d] = Divisor(static_cast<std::uint32_t>(sizes_[d]));
    }
  }

  int rank() const { return rank_; }
  std::int64_t size(int axis) const { return sizes_[axis]; }
  std::int64_t stride(int view, int axis) const { return strides_[view][axis]; }

  __device__ void offsets(std::int64_t i, std::int64_t (&out)[kViews]) const {
    if (small_) {
      std::uint32_t rest = static_cast<std::uint32_t>(i), at[kViews] = {};
      for (int d = rank_ - 1; d >= 0; --d) {
        const std::uint32_t outer = d == 0 ? 0 : divisors_[d].divide(rest);
        const std::uint32_t position = rest - outer * static_cast<std::uint32_t>(sizes_[d]);
        rest = outer;
        for (int v = 0; v < kViews; ++v)
          at[v] += position * static_cast<std::uint32_t>(strides_[v][d]);
      }
      for (int v = 0; v < kViews; ++v) out[v] = at[v];
      return;
    }
    for (int v = 0; v < kViews; ++v) out[v] = 0;
    for (int d = rank_ - 1; d >= 0; --d) {
      const std::int64_t outer = d == 0 ? 0 : i / sizes_[d];
      const std::int64_t position = i - outer * sizes_[d];
      i = outer;
      for (int v = 0; v < kViews; ++v) out[v] += position * strides_[v][d];
    }
  }
  /// Returns the offset in the only view.
  __device__ std::int64_t offset(std::int64_t i) const {
    static_assert(kViews == 1);
    std::int64_t at[1];
    offsets(i, at);
    return at[0];
  }

 private:
  static constexpr std::int64_t kSmall = std::int64_t{1} << 31;

  int rank_ = 0;
  bool small_ = false;  // true if every number fits in 31 bits
  Divisor divisors_[kMaxRank] = {};
  std::int64_t sizes_[kMaxRank] = {};
  std::int64_t strides_[kViews][kMaxRank] = {};
};

}  // namespace firn::kernels::cuda
