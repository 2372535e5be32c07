// Sums and other folds over a warp and a block, in an order that depends on the block's size alone.
#pragma once

#include "kernels/cuda/device/gpu.h"

namespace firn::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

/// Returns the value of the lane whose number differs in the bits of `mask`. All 32 lanes must call
/// it. For a struct with map(), like the states in math/rows.h, every member is exchanged.
template <class T>
__device__ T shuffle_xor(T value, int mask) {
  const auto shuffle = [mask](auto v) { return __shfl_xor_sync(kAllLanes, v, mask); };
  if constexpr (requires { value.map(shuffle); }) {
    return value.map(shuffle);
  } else {
    return shuffle(value);
  }
}

/// Returns fold(fold(x0, x1), ...) of the warp's lanes, in every lane. All 32 lanes must call it.
/// `fold` must be commutative, or results differ between lanes.
template <class T, class Fold>
__device__ T warp_fold(T value, Fold fold) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = fold(value, shuffle_xor(value, step));
  return value;
}

/// Returns the fold over all threads of a one-dimensional block, in every thread. Every thread
/// must call it. `scratch` is shared memory for 32 values; it is free for another use after a
/// __syncthreads(), and may be used again in the next call.
template <class T, class Fold>
__device__ T block_fold(T value, T neutral, T* scratch, Fold fold) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_fold(value, fold);
  __syncthreads();  // an earlier call may still read scratch
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = warp_fold(lane < warps ? scratch[lane] : neutral, fold);
  return value;
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// True, in all its threads, if this block is the last of the grid to get here. It sees what the
/// other blocks wrote before. Every thread must call it; `ticket` is 0 in device memory before the
/// launch, and 0 again after.
static __device__ inline bool is_last_block(unsigned* ticket) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == gridDim.x * gridDim.y * gridDim.z - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace firn::kernels::cuda
