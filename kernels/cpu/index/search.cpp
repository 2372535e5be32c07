// Searches a sorted list on the CPU.
#include <algorithm>
#include <array>

#include "kernels/cpu/device/parallel.h"
#include "kernels/math/order_key.h"
#include "kernels/sort.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kChunk = 16384;

/// Finds what math::bin_of() finds. It first looks at the bin where a number would be if the edges
/// had equal distances, and searches if it is not there.
template <class T>
class Bins {
 public:
  Bins(const T* edges, std::int64_t bins)
      : edges_(edges),
        bins_(bins),
        last_(static_cast<T>(bins - 1)),
        per_unit_(static_cast<T>(bins) / (edges[bins] - edges[0])) {}

  std::int64_t of(T x) const {
    const T place = (x - edges_[0]) * per_unit_;
    const T inside = place <= last_ ? place : last_;  // NaN too gives the last
    const std::int64_t guess =
        std::min(static_cast<std::int64_t>(inside >= 0 ? inside : 0), bins_ - 1);
    const bool below = x < edges_[guess + 1] || guess + 1 == bins_;
    return x >= edges_[guess] && below && x <= edges_[bins_] ? guess
                                                             : math::bin_of(x, edges_, bins_);
  }

 private:
  const T* edges_;
  std::int64_t bins_;
  T last_, per_unit_;
};

template <class T>
void find_bins_of(const T* x, std::int64_t n, const T* edges, std::int64_t bins,
                  std::int64_t* places) {
  parallel_for(math::ceil_div(n, kChunk), n, [&](std::int64_t c) {
    const Bins<T> all(edges, bins);
    for (std::int64_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i)
      places[i] = all.of(x[i]);
  });
}

constexpr std::int64_t kTogether = 16;  ///< searches whose reads overlap

/// Does what math::place_of() does, for `count` <= kTogether values in the same `n` elements.
template <class U>
void find_together(const U* values, std::int64_t count, const U* sorted, std::int64_t n,
                   const math::OrderKey<U>& key, bool after, std::int64_t* places) {
  std::array<U, kTogether> own;
  std::array<std::int64_t, kTogether> low{};
  const auto at = [](std::int64_t k) { return static_cast<std::size_t>(k); };
  for (std::int64_t k = 0; k < count; ++k) own[at(k)] = key(values[k]);
  const auto step = [&](std::int64_t ahead, std::int64_t width) {
    for (std::int64_t k = 0; k < count; ++k) {
      const U there = key(sorted[low[at(k)] + ahead]);
      const bool above = after ? there <= own[at(k)] : there < own[at(k)];
      low[at(k)] += above ? width : 0;
    }
  };
  for (std::int64_t length = n; length > 1;) {
    const std::int64_t half = length / 2;
    step(half - 1, half);
    length -= half;
  }
  if (n > 0) step(0, 1);
  for (std::int64_t k = 0; k < count; ++k) places[k] = low[at(k)];
}

template <class U>
void find_places_of(const ConstView& sorted, const ConstView& values, const View& out, bool after) {
  const std::int64_t n = sorted.shape[1], m = values.shape[1];
  const std::int64_t step = sorted.shape[0] == 1 ? 0 : n;
  const math::OrderKey<U> key(values.dtype, false);
  const U *const list = sorted.as<U>(), *const x = values.as<U>();
  auto* const to = out.as<std::int64_t>();
  parallel_for(math::ceil_div(out.numel(), kChunk), out.numel(), [&](std::int64_t c) {
    const std::int64_t end = std::min(out.numel(), (c + 1) * kChunk);
    for (std::int64_t i = c * kChunk, count = 0; i < end; i += count) {
      const std::int64_t row = i / m;
      count = std::min({kTogether, end - i, (row + 1) * m - i});
      find_together(x + i, count, list + row * step, n, key, after, to + i);
    }
  });
}

}  // namespace

void find_places(const ConstView& sorted, const ConstView& values, const View& out, bool after,
                 Stream) {
  if (out.numel() == 0) return;
  switch (size_of(values.dtype)) {
    case 1:
      return find_places_of<std::uint8_t>(sorted, values, out, after);
    case 2:
      return find_places_of<std::uint16_t>(sorted, values, out, after);
    case 4:
      return find_places_of<std::uint32_t>(sorted, values, out, after);
    default:
      return find_places_of<std::uint64_t>(sorted, values, out, after);
  }
}

void find_bins(const ConstView& x, const ConstView& edges, const View& places, Stream) {
  const std::int64_t bins = edges.shape[0] - 1;
  auto* const to = places.as<std::int64_t>();
  if (x.dtype == f64) return find_bins_of(x.as<double>(), x.numel(), edges.as<double>(), bins, to);
  find_bins_of(x.as<float>(), x.numel(), edges.as<float>(), bins, to);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
