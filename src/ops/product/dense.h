// Helpers of linear, mlp and the operations that contain such products.
#pragma once

#include <utility>

#include "ops/common.h"

namespace firn::ops {

/// Returns x [..., n] as rows [m, n]. It computes m: reshape(x, {-1, 0}) cannot infer it.
inline Tensor as_matrix(const Tensor& x) {
  if (x.rank() == 2) return x;
  Shape leading = x.shape();
  leading.pop_back();
  return reshape(x, {leading.product(), x.size(-1)});
}

/// Returns `v` with its last two axes swapped.
inline ConstView transposed(ConstView v) {
  const int n = v.rank();
  std::swap(v.shape[n - 1], v.shape[n - 2]);
  std::swap(v.strides[n - 1], v.strides[n - 2]);
  return v;
}

/// Throws Error unless x [..., in], w [out, in] and b [out] (or undefined) make a dense layer.
void require_dense(const char* op, const Tensor& x, const Tensor& w, const Tensor& b);

/// Adds the gradients of a dense layer's weight (input `weight`: dyᵀ x) and bias (input `bias`: the
/// sum of dy's rows), each if it is needed. Uses one launch if the sinks allow it.
void accumulate_dense(Backward& back, int weight, int bias, const Tensor& dy, const Tensor& x);

}  // namespace firn::ops
