// Hashes of values, on CUDA devices.
#include "kernels/value_hash.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/fault.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/math/value_hash.h"

namespace firn::kernels::cuda {
namespace {

constexpr unsigned kMostBlocks = 1024;

/// Adds the threads' sums to the total. Integers add up to the same bits in any order.
__device__ inline void add_to_total(std::uint64_t sum, unsigned long long* total) {
  auto* const scratch = gpu::dynamic_shared<std::uint64_t>();
  const std::uint64_t all = block_fold(sum, std::uint64_t{0}, scratch, Add());
  if (threadIdx.x == 0) atomicAdd(total, static_cast<unsigned long long>(all));
}

/// Hashes words of 8 bytes with `per_word` elements each.
static __global__ void hash_words_kernel(const std::uint64_t* words, std::int64_t n, int per_word,
                                         unsigned long long* total) {
  std::uint64_t sum = 0;
  for (std::int64_t i = global_thread(); i < n; i += grid_threads())
    sum += math::hash_term(words[i], static_cast<std::uint64_t>(i * per_word));
  add_to_total(sum, total);
}

/// Hashes single elements; T has their size.
template <class T>
static __global__ void hash_elements_kernel(const T* x, StridedAxes<1> axes, std::int64_t first,
                                            std::int64_t n, unsigned long long* total) {
  std::uint64_t sum = 0;
  for (std::int64_t i = first + global_thread(); i < n; i += grid_threads())
    sum += math::hash_term(x[axes.offset(i)], static_cast<std::uint64_t>(i));
  add_to_total(sum, total);
}

static __global__ void compare_hashes_kernel(const std::int64_t* now, const std::int64_t* before,
                                             FaultSite site) {
  if (*now != *before) raise_fault(site, 0, 0, -1);
}

dim3 blocks_for(std::int64_t n) { return dim3(std::min(grid_for(n).x, kMostBlocks)); }

template <class T>
void hash_as(const ConstView& x, const View& sum, Stream stream) {
  constexpr int kPerWord = 8 / sizeof(T);
  const Strides* const strides[] = {&x.strides};
  const Walk walk(x.shape, strides, 1);
  auto* const total = static_cast<unsigned long long*>(sum.data);
  const std::int64_t n = x.numel();
  std::int64_t done = 0;
  constexpr std::size_t kShared = kWarp * sizeof(std::uint64_t);
  if (walk.rank() == 1 && walk.inner_stride(0) == 1 &&
      reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0 && n >= kPerWord) {
    const std::int64_t words = n / kPerWord;
    gpu::launch("value_hash", hash_words_kernel, blocks_for(words), dim3(kBlock), kShared, stream,
                static_cast<const std::uint64_t*>(x.data), words, kPerWord, total);
    done = words * kPerWord;
  }
  if (done < n)
    gpu::launch("value_hash", hash_elements_kernel<T>, blocks_for(n - done), dim3(kBlock), kShared,
                stream, static_cast<const T*>(x.data), StridedAxes<1>(walk), done, n, total);
}

}  // namespace

void value_hash(const ConstView& x, const View& sum, Stream stream) {
  if (x.numel() == 0) return;
  switch (size_of(x.dtype)) {
    case 1:
      return hash_as<std::uint8_t>(x, sum, stream);
    case 2:
      return hash_as<std::uint16_t>(x, sum, stream);
    case 4:
      return hash_as<std::uint32_t>(x, sum, stream);
    default:
      return hash_as<std::uint64_t>(x, sum, stream);
  }
}

void require_same_hash(const ConstView& now, const ConstView& before, const char* op,
                       Stream stream) {
  const FaultSite site = fault_site(op, kOtherValues, stream.device);
  gpu::launch("require_same_hash", compare_hashes_kernel, dim3(1), dim3(1), 0, stream,
              now.as<std::int64_t>(), before.as<std::int64_t>(), site);
}

}  // namespace firn::kernels::cuda
