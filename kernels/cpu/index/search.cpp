// Searches a sorted list on the CPU.
#include <algorithm>

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

template <class U>
void find_places_of(const ConstView& sorted, const ConstView& values, const View& out, bool after) {
  const std::int64_t n = sorted.shape[1], m = values.shape[1];
  const std::int64_t step = sorted.shape[0] == 1 ? 0 : n;
  const math::OrderKey<U> key(values.dtype, false);
  const U *const list = sorted.as<U>(), *const x = values.as<U>();
  auto* const to = out.as<std::int64_t>();
  parallel_for(math::ceil_div(out.numel(), kChunk), out.numel(), [&](std::int64_t c) {
    for (std::int64_t i = c * kChunk; i < std::min(out.numel(), (c + 1) * kChunk); ++i)
      to[i] = math::place_of(key(x[i]), list + i / m * step, n, key, after);
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
