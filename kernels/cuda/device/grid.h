// How large the grids of CUDA kernels become whose threads stride over their work.
#pragma once

#include <atomic>
#include <cstdint>

namespace firn::kernels::cuda {

/// Blocks of a grid at most: several waves on the largest GPUs. Threads stride over what is left,
/// and so the number changes no result; tests set a small one to see that.
std::atomic<std::int64_t>& max_blocks() noexcept;

}  // namespace firn::kernels::cuda
