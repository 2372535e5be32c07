// Searches a sorted list on CUDA devices, with one thread for each element.
#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/math/order_key.h"
#include "kernels/sort.h"

namespace firn::kernels::cuda {
namespace {

template <class T>
__global__ void find_bins_kernel(const T* x, std::int64_t n, const T* edges, std::int64_t bins,
                                 std::int64_t* places) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads())
    places[i] = math::bin_of(x[i], edges, bins);
}

template <class U>
__global__ void find_places_kernel(const U* sorted, std::int64_t n, std::int64_t step, const U* x,
                                   std::int64_t m, std::int64_t count, math::OrderKey<U> key,
                                   bool after, std::int64_t* out) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads())
    out[i] = math::place_of(key(x[i]), sorted + math::floor_div(i, m) * step, n, key, after);
}

}  // namespace

void find_places(const ConstView& sorted, const ConstView& values, const View& out, bool after,
                 Stream stream) {
  const std::int64_t count = out.numel(), n = sorted.shape[1];
  if (count == 0) return;
  with_bits(size_of(values.dtype), [&]<class U>(U) {
    if constexpr (sizeof(U) <= 8) {
      gpu::launch("searchsorted", find_places_kernel<U>, grid_for(count), dim3(kBlock), 0, stream,
                  sorted.as<U>(), n, sorted.shape[0] == 1 ? 0 : n, values.as<U>(), values.shape[1],
                  count, math::OrderKey<U>(values.dtype, false), after, out.as<std::int64_t>());
    }
  });
}

void find_bins(const ConstView& x, const ConstView& edges, const View& places, Stream stream) {
  const std::int64_t n = x.numel(), bins = edges.shape[0] - 1;
  if (n == 0) return;
  const auto launch = [&]<class T>(T) {
    gpu::launch("find_bins", find_bins_kernel<T>, grid_for(n), dim3(kBlock), 0, stream, x.as<T>(),
                n, edges.as<T>(), bins, places.as<std::int64_t>());
  };
  x.dtype == f64 ? launch(double()) : launch(float());
}

}  // namespace firn::kernels::cuda
