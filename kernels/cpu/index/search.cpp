// Searching a sorted list on the CPU.
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

}  // namespace

void find_bins(const ConstView& x, const ConstView& edges, const View& places, Stream) {
  const std::int64_t bins = edges.shape[0] - 1;
  auto* const to = places.as<std::int64_t>();
  if (x.dtype == f64) return find_bins_of(x.as<double>(), x.numel(), edges.as<double>(), bins, to);
  find_bins_of(x.as<float>(), x.numel(), edges.as<float>(), bins, to);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
