// Searches a sorted list on the CPU.
#include <algorithm>

#include "kernels/cpu/device/parallel.h"
#include "kernels/math/order_key.h"
#include "kernels/sort.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kChunk = 16384;

template <class T>
void find_bins_of(const T* x, std::int64_t n, const T* edges, std::int64_t bins,
                  std::int64_t* places) {
  parallel_for(math::ceil_div(n, kChunk), n, [&](std::int64_t c) {
    for (std::int64_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i)
      places[i] = math::bin_of(x[i], edges, bins);
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
