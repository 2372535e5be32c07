// Counts integers on CUDA devices. Sums of integers do not depend on their order, so blocks may add
// by atomics.
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/index/index.cuh"
#include "kernels/index.h"

namespace firn::kernels::cuda {
namespace {

constexpr std::int64_t kSharedCounts = 4096;

/// A block counts in shared memory, and adds its counts. It takes fewer than 2^32 indices.
__global__ void count_in_blocks(Index index, std::int64_t stride, std::int64_t n,
                                unsigned long long* out) {
  auto* const counts = gpu::dynamic_shared<unsigned>();
  const int places = static_cast<int>(index.bound);
  for (int p = static_cast<int>(threadIdx.x); p < places; p += kBlock) counts[p] = 0;
  __syncthreads();
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    const std::int64_t value = index.value(i * stride);
    if (index.allows(value)) {
      atomicAdd(&counts[value], 1u);
    } else {
      index.raise(i * stride, value);
    }
  }
  __syncthreads();
  for (int p = static_cast<int>(threadIdx.x); p < places; p += kBlock) {
    if (counts[p] != 0) atomicAdd(&out[p], static_cast<unsigned long long>(counts[p]));
  }
}

__global__ void count_in_memory(Index index, std::int64_t stride, std::int64_t n,
                                unsigned long long* out) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    const std::int64_t value = index.value(i * stride);
    if (index.allows(value)) {
      atomicAdd(&out[value], 1ull);
    } else {
      index.raise(i * stride, value);
    }
  }
}

}  // namespace

void count(const char* op, const ConstView& index, const View& out, Stream stream) {
  fill(out, 0, stream);
  const std::int64_t n = index.shape[0], places = out.shape[0];
  if (n == 0) return;
  const bool shared = places <= kSharedCounts && n < std::int64_t{1} << 32;
  const std::size_t bytes = shared ? static_cast<std::size_t>(places) * sizeof(unsigned) : 0;
  gpu::launch(op, shared ? count_in_blocks : count_in_memory, grid_for(n), dim3(kBlock), bytes,
              stream, Index(op, index, places), index.strides[0], n,
              static_cast<unsigned long long*>(out.data));
}

}  // namespace firn::kernels::cuda
