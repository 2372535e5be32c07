// Products of vectors, whose factors are not worth packing.
#pragma once

#include <utility>

#include "firn/view.h"
#include "kernels/gemm.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// A matrix with its axes swapped.
template <class V>
V turned(V v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

/// c [1, 1] = alpha a b + beta c for a [1, k] and b [k, 1], as gemm() computes it. The bits depend
/// on k alone, and are not those of a row among several.
void dot(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args);

/// c [m, n] = alpha a b + beta c for a [m, 1] and b [1, n] of 16 bits, to the bit as gemm()
/// computes it.
void outer(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args);

}  // namespace firn::kernels::cpu::FIRN_ISA
