// Grids made small, so that the threads of a CUDA kernel stride over what a test's tensors hold.
#pragma once

#ifdef FIRN_HAS_CUDA
#include <cstdint>

#include "kernels/cuda/device/grid.h"

namespace firn::testing {

/// While alive, grids have that many blocks at most.
class SmallGrids {
 public:
  explicit SmallGrids(std::int64_t blocks)
      : before_(kernels::cuda::max_blocks().exchange(blocks)) {}
  ~SmallGrids() { kernels::cuda::max_blocks() = before_; }
  SmallGrids(const SmallGrids&) = delete;
  SmallGrids& operator=(const SmallGrids&) = delete;

 private:
  std::int64_t before_;
};

}  // namespace firn::testing
#endif
