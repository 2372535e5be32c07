#include "kernels.h"

#include <algorithm>

namespace kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__device__ int global_thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// ---- Right ones ----

static __global__ void axpy_kernel(float a, const float* x, float* y, std::int64_t n) {
  const std::int64_t first = global_thread(), step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t vectors = n / 4;
  for (std::int64_t i = first; i < vectors; i += step) {
    const float4 u = reinterpret_cast<const float4*>(x)[i];
    float4 v = reinterpret_cast<float4*>(y)[i];
    v.x += a * u.x;
    v.y += a * u.y;
    v.z += a * u.z;
    v.w += a * u.w;
    reinterpret_cast<float4*>(y)[i] = v;
  }
  for (std::int64_t i = vectors * 4 + first; i < n; i += step) y[i] += a * x[i];
}

__device__ float warp_sum(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(kAll, v, unsigned(step));
  return v;
}

/// The block's sum, in thread 0.
static __device__ float block_sum(float v) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  v = warp_sum(v);
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  if (warp == 0) v = warp_sum(lane < int(blockDim.x / 32) ? partial[lane] : 0.f);
  return v;
}

static __device__ float share_of(const float* x, std::int64_t n) {
  float v = 0;
  for (std::int64_t i = global_thread(); i < n; i += gridDim.x * blockDim.x) v += x[i];
  return v;
}

static __global__ void sum_atomic_kernel(const float* x, float* out, std::int64_t n) {
  const float v = block_sum(share_of(x, n));
  if (threadIdx.x == 0) atomicAdd(out, v);
}

static __global__ void sum_partial_kernel(const float* x, float* partial, std::int64_t n) {
  const float v = block_sum(share_of(x, n));
  if (threadIdx.x == 0) partial[blockIdx.x] = v;
}

/// As a whole warp's result, so that the fence before the barrier matters: 32 threads write it.
static __global__ void sum_last_block_kernel(const float* x, float* partial, unsigned* ticket,
                                             float* out, std::int64_t n, LastBlock parts) {
  __shared__ bool last;
  const float v = warp_sum(share_of(x, n));
  const int warps = int(blockDim.x / 32), warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) partial[int(blockIdx.x) * warps + warp] = v;
  if (parts.fence_before) __threadfence();
  if (parts.barrier) __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  if (parts.fence_after) __threadfence();
  if (!last || threadIdx.x > 0) return;
  float sum = 0;
  for (int i = 0; i < int(gridDim.x) * warps; ++i) sum += partial[i];
  *out = sum;
}

static __global__ void softmax_kernel(const float* x, float* y, int columns) {
  float* const row = cusim::dyn_smem<float>();
  __shared__ float total;
  const std::int64_t start = std::int64_t{blockIdx.x} * columns;
  float largest = -INFINITY, sum = 0;
  for (int c = 0; c < columns; ++c) largest = fmaxf(largest, x[start + c]);
  for (int c = int(threadIdx.x); c < columns; c += int(blockDim.x)) {
    row[c] = __expf(x[start + c] - largest);
    sum += row[c];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  for (int c = int(threadIdx.x); c < columns; c += int(blockDim.x)) y[start + c] = row[c] / total;
}

template <bool kSecondBarrier>
static __global__ void matmul_kernel(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[16][17], tile_b[16][17];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = int(blockIdx.y) * 16 + y, column = int(blockIdx.x) * 16 + x;
  float sum = 0;
  for (int t = 0; t < n; t += 16) {
    tile_a[y][x] = row < n && t + x < n ? a[row * n + t + x] : 0.f;
    tile_b[y][x] = column < n && t + y < n ? b[(t + y) * n + column] : 0.f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += tile_a[y][k] * tile_b[k][x];
    if (kSecondBarrier) __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

static __global__ void warp_operations_kernel(std::uint32_t* out) {
  const unsigned i = threadIdx.x;
  std::uint32_t* const r = out + 8 * i;
  r[0] = __shfl_sync(kAll, i, 5);
  r[1] = __shfl_up_sync(kAll, i, 1);
  r[2] = __shfl_down_sync(kAll, i, 1);
  r[3] = __shfl_xor_sync(kAll, i, 1, 16);
  r[4] = __ballot_sync(kAll, i % 2);
  r[5] = unsigned(__any_sync(kAll, i == 3)) + 2 * unsigned(__all_sync(kAll, i < 64));
  r[6] = __match_any_sync(kAll, i % 4);
  if (i % 32 < 16) r[7] = __shfl_xor_sync(0x0000ffffu, i, 2);
  if (i % 32 >= 16) r[7] = __shfl_xor_sync(0xffff0000u, i, 4);
}

static __global__ void block_votes_kernel(int* out, int n) {
  const int vote = int(threadIdx.x) < n;
  const int count = __syncthreads_count(vote), all = __syncthreads_and(vote),
            any = __syncthreads_or(vote);
  if (threadIdx.x == 0) out[0] = count, out[1] = all, out[2] = any;
}

static __global__ void store_kernel(int* record, int value) { *record = value; }

// ---- Planted faults ----

static __global__ void write_past_end_kernel(float* y, int n) {
  if (global_thread() <= n) y[global_thread()] = 1;  // should be <
}

static __global__ void vector_read_past_end_kernel(const float* x, float* y, int n) {
  const int i = global_thread();
  if (4 * i >= n) return;  // n need not be a multiple of 4
  const float4 v = reinterpret_cast<const float4*>(x)[i];
  y[i] = v.x + v.y + v.z + v.w;
}

static __global__ void missing_barrier_kernel(const float* x, float* out, int n) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float v = warp_sum(share_of(x, n));
  if (lane == 0) partial[warp] = v;
  // here belongs __syncthreads()
  if (warp == 0) {
    v = warp_sum(lane < int(blockDim.x / 32) ? partial[lane] : 0.f);
    if (lane == 0) *out = v;
  }
}

static __global__ void divergent_barrier_kernel(float* x) {
  __shared__ float copy[256];
  copy[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 100) {
    __syncthreads();
    x[threadIdx.x] = copy[(threadIdx.x + 1) % 100];
  } else {
    __syncthreads();
  }
}

static __global__ void early_exit_kernel(float* x, int n) {
  __shared__ float copy[256];
  if (int(threadIdx.x) >= n) return;  // and the barrier waits for it
  copy[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = copy[n - 1 - int(threadIdx.x)];
}

static __global__ void race_of_blocks_kernel(const float* x, float* out, int n) {
  const float v = warp_sum(share_of(x, n));
  if (threadIdx.x == 0) *out += v;  // should be atomic
}

static __global__ void unwritten_shared_kernel(float* y) {
  __shared__ float copy[64];
  if (threadIdx.x < 63) copy[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = copy[threadIdx.x];
}

static __global__ void shared_overrun_kernel(float* y) {
  __shared__ float copy[64];
  copy[threadIdx.x + 1] = 1;
  __syncthreads();
  y[threadIdx.x] = copy[threadIdx.x ? threadIdx.x : 1];
}

static __global__ void misaligned_vector_kernel(const float* x, float* y) {
  // By a reference, as lanes_at() does it: Clang takes the copy itself apart.
  const float4& v = *reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x);
  y[threadIdx.x] = v.x + v.w;
}

static __global__ void absent_lanes_kernel(float* y) {
  float v = float(threadIdx.x);
  if (threadIdx.x < 16) {
    v = __shfl_xor_sync(kAll, v, 1);  // the other 16 lanes never come here
  } else {
    v = __shfl_xor_sync(kAll, v, 2);
  }
  y[threadIdx.x] = v;
}

static __global__ void missing_syncwarp_kernel(float* y) {
  __shared__ float copy[32];
  copy[threadIdx.x] = float(threadIdx.x);
  // here belongs __syncwarp(): it works by luck where a warp runs in lock-step
  y[threadIdx.x] = copy[31 - threadIdx.x];
}

static __global__ void unwritten_device_kernel(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] * 2;
}

template <class... P, class... A>
cudaError_t run(void (*kernel)(P...), dim3 grid, dim3 block, A... values) {
  return cusim::launch(kernel, grid, block, 0, nullptr, values...);
}

}  // namespace

cudaError_t axpy(float a, const float* x, float* y, std::int64_t n, cudaStream_t stream) {
  return cusim::launch(axpy_kernel, unsigned(std::min<std::int64_t>((n + 511) / 512, 64)), 128, 0,
                       stream, a, x, y, n);
}
cudaError_t sum_atomic(const float* x, float* out, std::int64_t n) {
  return run(sum_atomic_kernel, 40, 64, x, out, n);
}
cudaError_t sum_partial(const float* x, float* partial, std::int64_t n, int blocks) {
  return run(sum_partial_kernel, unsigned(blocks), 64, x, partial, n);
}
cudaError_t sum_last_block(const float* x, float* partial, unsigned* ticket, float* out,
                           std::int64_t n, int blocks, LastBlock parts) {
  return run(sum_last_block_kernel, unsigned(blocks), 64, x, partial, ticket, out, n, parts);
}
cudaError_t softmax(const float* x, float* y, int rows, int columns) {
  return cusim::launch(softmax_kernel, unsigned(rows), 64, unsigned(columns) * sizeof(float),
                       nullptr, x, y, columns);
}
cudaError_t matmul(const float* a, const float* b, float* c, int n) {
  const unsigned tiles = unsigned(n + 15) / 16;
  return run(matmul_kernel<true>, dim3(tiles, tiles), dim3(16, 16), a, b, c, n);
}
cudaError_t warp_operations(std::uint32_t* out) { return run(warp_operations_kernel, 1, 64, out); }
cudaError_t block_votes(int* out, int n) { return run(block_votes_kernel, 1, 96, out, n); }
cudaError_t store(int* record, int value, cudaStream_t stream) {
  return cusim::launch(store_kernel, 1, 1, 0, stream, record, value);
}

cudaError_t write_past_end(float* y, int n) {
  return run(write_past_end_kernel, unsigned(n / 64 + 1), 64, y, n);
}
cudaError_t vector_read_past_end(const float* x, float* y, int n) {
  return run(vector_read_past_end_kernel, 1, 64, x, y, n);
}
cudaError_t missing_barrier(const float* x, float* out, int n) {
  return run(missing_barrier_kernel, 1, 256, x, out, n);
}
cudaError_t missing_second_barrier(const float* a, const float* b, float* c, int n) {
  const unsigned tiles = unsigned(n + 15) / 16;
  return run(matmul_kernel<false>, dim3(tiles, tiles), dim3(16, 16), a, b, c, n);
}
cudaError_t divergent_barrier(float* x) { return run(divergent_barrier_kernel, 1, 256, x); }
cudaError_t early_exit(float* x, int n) { return run(early_exit_kernel, 1, 256, x, n); }
cudaError_t race_of_blocks(const float* x, float* out, int n) {
  return run(race_of_blocks_kernel, unsigned(n + 31) / 32, 32, x, out, n);
}
cudaError_t unwritten_shared(float* y) { return run(unwritten_shared_kernel, 2, 64, y); }
cudaError_t shared_overrun(float* y) { return run(shared_overrun_kernel, 1, 64, y); }
cudaError_t misaligned_vector(const float* x, float* y) {
  return run(misaligned_vector_kernel, 1, 4, x, y);
}
cudaError_t absent_lanes(float* y) { return run(absent_lanes_kernel, 1, 32, y); }
cudaError_t missing_syncwarp(float* y) { return run(missing_syncwarp_kernel, 1, 32, y); }
cudaError_t unwritten_device(const float* x, float* y) {
  return run(unwritten_device_kernel, 1, 64, x, y);
}

}  // namespace kernels
