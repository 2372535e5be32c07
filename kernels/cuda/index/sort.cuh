// A stable sort of positions by key on the device, by least significant digit: passes of 8 bits,
// each two launches. The host reads nothing, and no step depends on the order in which blocks or
// threads run.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {

inline constexpr int kDigits = 256;  // values of a digit: one for each thread of a block
inline constexpr int kSortRounds = 16;
inline constexpr int kWarpKeys = kSortRounds * kWarp;          // keys of one warp, in their order
inline constexpr int kBlockKeys = kBlock / kWarp * kWarpKeys;  // keys of one block
static_assert(kBlock == kDigits);

/// The memory of a sort of n pairs. K is uint32_t or uint64_t, and n fits it.
template <class K>
struct SortBuffers {
  K* keys[2];
  K* positions[2];
  K* counts;         ///< [sort_blocks(n), kDigits]
  unsigned* ticket;  ///< 0 before the first launch
};

inline std::int64_t sort_blocks(std::int64_t n) { return math::ceil_div(n, kBlockKeys); }

/// Returns the sum of `value` over the threads before this one. Every thread of a block of kBlock
/// calls it.
template <class T>
__device__ T sum_before(T value, T* scratch) {
  const int t = static_cast<int>(threadIdx.x);
  scratch[t] = value;
  __syncthreads();
  for (int step = 1; step < kBlock; step *= 2) {
    const T left = t >= step ? scratch[t - step] : T(0);
    __syncthreads();
    scratch[t] += left;
    __syncthreads();
  }
  return scratch[t] - value;
}

/// Counts how often each digit occurs in each block's keys. The last block turns the counts into
/// the place of each block's first key with that digit.
template <class K>
static __global__ void count_digits(const K* keys, std::int64_t n, int shift, K* counts,
                                    unsigned* ticket) {
  __shared__ unsigned count[kDigits];
  __shared__ K scratch[kDigits];
  const int t = static_cast<int>(threadIdx.x);
  count[t] = 0;
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kBlockKeys;
  for (int i = t; i < kBlockKeys && first + i < n; i += kBlock) {
    atomicAdd(&count[(keys[first + i] >> shift) % kDigits], 1u);
  }
  __syncthreads();
  counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + t] = count[t];
  if (is_last_block(ticket)) {
    const std::int64_t blocks = gridDim.x;
    K total = 0;
    for (std::int64_t b = 0; b < blocks; ++b) total += counts[b * kDigits + t];
    K place = sum_before(total, scratch);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const K here = counts[b * kDigits + t];
      counts[b * kDigits + t] = place;
      place += here;
    }
  }
}

/// Moves every pair to its place by one digit. A warp takes kWarpKeys adjacent pairs, 32 at a time;
/// pairs of one digit keep their order.
template <class K>
static __global__ void move_by_digit(const K* keys, const K* positions, std::int64_t n, int shift,
                                     const K* counts, K* keys_out, K* positions_out) {
  __shared__ K place[kDigits];                        // place of the block's first key with a digit
  __shared__ unsigned next[kBlock / kWarp][kDigits];  // from there, place of a warp's next key
  const int t = static_cast<int>(threadIdx.x), lane = t % kWarp, warp = t / kWarp;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kBlockKeys + warp * kWarpKeys + lane;
  place[t] = counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + t];
  for (int w = 0; w < kBlock / kWarp; ++w) next[w][t] = 0;
  __syncthreads();
  for (int round = 0; round < kSortRounds; ++round) {
    const std::int64_t i = first + round * kWarp;
    if (i < n) atomicAdd(&next[warp][(keys[i] >> shift) % kDigits], 1u);
  }
  __syncthreads();
  unsigned before_warp = 0;
  for (int w = 0; w < kBlock / kWarp; ++w) {
    const unsigned here = next[w][t];
    next[w][t] = before_warp;
    before_warp += here;
  }
  __syncthreads();
  for (int round = 0; round < kSortRounds; ++round) {
    const std::int64_t i = first + round * kWarp;
    const K key = i < n ? keys[i] : K(0);
    const unsigned digit = i < n ? static_cast<unsigned>((key >> shift) % kDigits) : kDigits;
    const unsigned same = __match_any_sync(kAllLanes, digit);
    const int before = __popc(same & ((1u << lane) - 1u));
    if (i < n) {
      const K to = place[digit] + next[warp][digit] + static_cast<unsigned>(before);
      keys_out[to] = key;
      positions_out[to] = positions[i];
    }
    __syncwarp();
    if (i < n && before == 0) next[warp][digit] += static_cast<unsigned>(__popc(same));
    __syncwarp();
  }
}

/// Sorts the pairs in keys[0], positions[0] by the lower `bits` bits of the key; pairs of one key
/// keep their order. Returns the index of the buffer that then holds them.
template <class K>
int sort_pairs(const char* op, const SortBuffers<K>& b, std::int64_t n, int bits, Stream stream) {
  const dim3 grid(static_cast<unsigned>(sort_blocks(n)));
  int from = 0;
  for (int shift = 0; shift < bits; shift += 8) {
    gpu::launch(op, count_digits<K>, grid, dim3(kBlock), 0, stream, b.keys[from], n, shift,
                b.counts, b.ticket);
    gpu::launch(op, move_by_digit<K>, grid, dim3(kBlock), 0, stream, b.keys[from],
                b.positions[from], n, shift, b.counts, b.keys[1 - from], b.positions[1 - from]);
    from = 1 - from;
  }
  return from;
}

}  // namespace firn::kernels::cuda
