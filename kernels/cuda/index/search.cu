// Searching a sorted list on CUDA devices: one thread for each element.
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

}  // namespace

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
