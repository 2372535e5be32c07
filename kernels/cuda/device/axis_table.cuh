// The axes of several views, which the host prepares for a kernel that moves elements. It merges
// axes, and combines adjacent elements into one wider element if the innermost axis allows it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/plan/walk.h"

namespace firn::kernels::cuda {

/// Axes of V views of one shape, largest stride of view 0 first.
template <int V>
struct AxisTable {
  int rank = 0;
  std::int64_t sizes[kMaxRank] = {};
  std::int64_t strides[V][kMaxRank] = {};

  AxisTable(const Shape& shape, const Strides* const (&views)[V]) {
    const Walk walk(shape, views, V);
    rank = walk.rank();
    for (int d = 0; d < rank; ++d) {
      sizes[d] = walk.size(d);
      for (int v = 0; v < V; ++v) strides[v][d] = walk.stride(v, d);
    }
  }

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
  bool contiguous(int view) const { return rank == 1 && strides[view][0] == 1; }

  /// Number of adjacent elements of `bytes` bytes each that can be combined, at most 16 bytes, in
  /// the views with a non-null address. The other views must have stride 0 along the innermost
  /// axis.
  int together(std::size_t bytes, const void* const (&data)[V]) const {
    const int inner = rank - 1;
    for (int v = 0; v < V; ++v) {
      if (strides[v][inner] != (data[v] ? 1 : 0)) return 1;
    }
    for (int width = static_cast<int>(16 / bytes); width > 1; width /= 2) {
      bool fits = sizes[inner] % width == 0;
      for (int v = 0; v < V; ++v) {
        if (!data[v]) continue;
        fits = fits && reinterpret_cast<std::uintptr_t>(data[v]) % (bytes * width) == 0;
        for (int d = 0; d < inner; ++d) fits = fits && strides[v][d] % width == 0;
      }
      if (fits) return width;
    }
    return 1;
  }
  /// Changes to units of `width` elements, in the views with a non-null address.
  void group(int width, const void* const (&data)[V]) {
    if (width == 1) return;
    const int inner = rank - 1;
    sizes[inner] /= width;
    for (int v = 0; v < V; ++v) {
      if (!data[v]) continue;
      for (int d = 0; d < inner; ++d) strides[v][d] /= width;
    }
    if (sizes[inner] == 1 && rank > 1) --rank;
  }

  /// Changes the strides of the chosen views to units of `width` elements, which divides them all.
  void rescale(int width, const bool (&views)[V]) {
    for (int v = 0; v < V; ++v) {
      for (int d = 0; d < rank && views[v]; ++d) {
        strides[v][d] = sizes[d] == 1 ? 0 : strides[v][d] / width;
      }
    }
  }

  /// Returns the axes as kernels take them.
  StridedAxes<V> on_device() const {
    StridedAxes<V> axes;
    for (int d = 0; d < rank; ++d) {
      std::int64_t steps[V];
      for (int v = 0; v < V; ++v) steps[v] = strides[v][d];
      axes.push_back(sizes[d], steps);
    }
    axes.finish();
    return axes;
  }
};

/// Calls fn(T()) with an unsigned type of `bytes` bytes: 1, 2, 4, 8 or 16.
template <class Fn>
void with_bits(std::size_t bytes, Fn&& fn) {
  switch (bytes) {
    case 1:
      return fn(std::uint8_t());
    case 2:
      return fn(std::uint16_t());
    case 4:
      return fn(std::uint32_t());
    case 8:
      return fn(std::uint64_t());
    default:
      return fn(uint4());
  }
}

}  // namespace firn::kernels::cuda
