// One block of a GEMM on one thread: by oneDNN for f32 if it is installed, else by Eigen.
#pragma once

#include <cstdint>

#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// A matrix with a unit stride: row-major with leading dimension ld, or the transpose of one.
template <class T>
struct BlockOperand {
  const T* data;
  std::int64_t ld;
  bool transposed;

  /// Returns the address of element (i, j) of the logical matrix.
  const T* at(std::int64_t i, std::int64_t j) const {
    return transposed ? data + j * ld + i : data + i * ld + j;
  }
};

/// Returns the scratch memory of gemm_block() for such operands, as slot_bytes() counts it.
template <class T>
std::int64_t gemm_block_scratch(std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed,
                                bool b_transposed);
/// c [m, n] (row-major, leading dimension ldc) = alpha a b + beta c, for a [m, k] and b [k, n].
/// With beta 0, c is not read. T is float or double. It runs in a chunk that has scratch memory.
template <class T>
void gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const BlockOperand<T>& a,
                const BlockOperand<T>& b, T beta, T* c, std::int64_t ldc);

}  // namespace firn::kernels::cpu::FIRN_ISA
