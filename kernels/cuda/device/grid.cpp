#include "kernels/cuda/device/grid.h"

namespace firn::kernels::cuda {

std::atomic<std::int64_t>& max_blocks() noexcept {
  static std::atomic<std::int64_t> blocks{8192};
  return blocks;
}

}  // namespace firn::kernels::cuda
