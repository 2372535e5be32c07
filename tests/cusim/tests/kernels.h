// Kernels for the simulator's own tests: some that are right, and the fifteen planted faults.
#pragma once

#include <cstdint>

#include "cusim.h"

namespace kernels {

// ---- Right ones: each launches on `stream` ----

/// y = a x + y, 16 bytes at a time.
cudaError_t axpy(float a, const float* x, float* y, std::int64_t n, cudaStream_t stream = nullptr);
/// *out += sum of x, by atomicAdd from every block.
cudaError_t sum_atomic(const float* x, float* out, std::int64_t n);
/// partial[b] = sum of block b's share of x.
cudaError_t sum_partial(const float* x, float* partial, std::int64_t n, int blocks);
/// *out = sum of x in one launch: the last block to finish adds the partial sums. The fences, the
/// barrier before the ticket and the order of all can be left out.
struct LastBlock {
  bool fence_before = true, barrier = true, fence_after = true;
};
cudaError_t sum_last_block(const float* x, float* partial, unsigned* ticket, float* out,
                           std::int64_t n, int blocks, LastBlock parts = {});
/// Softmax of each row, in dynamic shared memory.
cudaError_t softmax(const float* x, float* y, int rows, int columns);
/// c = a b, n x n, in tiles of 16 x 16 in shared memory.
cudaError_t matmul(const float* a, const float* b, float* c, int n);
/// out[i] = thread i's result of each warp operation, 8 a thread.
cudaError_t warp_operations(std::uint32_t* out);
/// out[0..2] = __syncthreads_count, _and, _or of thread < n.
cudaError_t block_votes(int* out, int n);
/// *record = value, wherever it is.
cudaError_t store(int* record, int value, cudaStream_t stream = nullptr);

// ---- Planted faults: one launch each ----

cudaError_t write_past_end(float* y, int n);
cudaError_t vector_read_past_end(const float* x, float* y, int n);
cudaError_t missing_barrier(const float* x, float* out, int n);
cudaError_t missing_second_barrier(const float* a, const float* b, float* c, int n);
cudaError_t divergent_barrier(float* x);
cudaError_t early_exit(float* x, int n);
cudaError_t race_of_blocks(const float* x, float* out, int n);
cudaError_t unwritten_shared(float* y);
cudaError_t shared_overrun(float* y);
cudaError_t misaligned_vector(const float* x, float* y);
cudaError_t absent_lanes(float* y);
cudaError_t missing_syncwarp(float* y);
cudaError_t unwritten_device(const float* x, float* y);

}  // namespace kernels
