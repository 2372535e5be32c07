// The largest grid of CUDA kernels whose threads stride over their work.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::kernels::cuda {

/// Largest number of blocks of a grid: several waves on the largest GPUs. Threads stride over the
/// rest, so the number changes no result; tests set a small one to check that.
std::atomic<std::int64_t>& max_blocks() noexcept;

}  // namespace firn::kernels::cuda
