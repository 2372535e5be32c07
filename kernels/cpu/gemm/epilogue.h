// Products with an epilogue: what is to be done to the result is done to each block of it, while
// that is in the cache of the core that computed it.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/gemm.h"

namespace firn::kernels::cpu {

/// Rows [i, i + rows) and columns [j, j + cols) of a result. j is a multiple of 16.
struct Block {
  std::int64_t i, rows, j, cols;
};

/// Called by several threads at once, each time for another block. Wrap a lambda in std::ref(): a
/// function that holds more than two pointers itself would be put on the heap.
using Epilogue = std::function<void(const Block&)>;

/// gemm() into a row-major c of rank 2 and of the compute dtype; `then` sees each block of c once.
void gemm_with_epilogue(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
                        const Epilogue& epilogue);

}  // namespace firn::kernels::cpu
