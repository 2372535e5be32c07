// GEMMs with an epilogue. It is applied to each block of the result while the block is in the cache
// of the core that computed it.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/gemm.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Rows [i, i + rows) and columns [j, j + cols) of a result. j is a multiple of 16. `values`
/// [rows, cols] is in the compute dtype; an epilogue may change it before it is rounded.
struct Block {
  std::int64_t i, rows, j, cols;
  View values;
};

/// Several threads call an epilogue at once, each for another block. Wrap a lambda in std::ref():
/// std::function would put one that holds more than two pointers on the heap.
using Epilogue = std::function<void(const Block&)>;

/// Computes gemm() into a row-major c of rank 2; `epilogue` sees each block once.
void gemm_with_epilogue(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args,
                        const Epilogue& epilogue);

}  // namespace firn::kernels::cpu::FIRN_ISA
