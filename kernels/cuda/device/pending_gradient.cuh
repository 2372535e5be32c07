// Computation of a backward pass's initial gradient by one of its kernels. Every block computes it
// for itself, and the last block to finish stores it.
#pragma once

#include "kernels/cuda/device/block.cuh"
#include "kernels/plan/pending_gradient.h"

namespace firn::kernels::cuda {

/// A scalar in f32 or f64.
struct Scalar {
  const void* data;  ///< nullptr if it is `value`
  bool wide;
  double value;

  explicit Scalar(const ConstView& v = {}, double otherwise = 0)
      : data(v.data), wide(v.dtype == DType::f64), value(otherwise) {}

  __device__ double read() const {
    if (!data) return value;
    return wide ? *static_cast<const double*>(data)
                : static_cast<double>(*static_cast<const float*>(data));
  }
};

/// A PendingGradient as a kernel's parameter.
struct PendingPointers {
  math::LossSums* sums = nullptr;
  const math::ScalerState* scaler = nullptr;
  unsigned* ticket = nullptr;
  math::ScalePolicy policy;
  Scalar loss, weight;
  void* gradient = nullptr;  ///< nullptr if no initial gradient is pending
  bool wide = false;

  explicit PendingPointers(const PendingGradient* pending = nullptr) {
    if (!pending) return;
    sums = pending->sums.as<math::LossSums>();
    scaler = pending->scaler.as<math::ScalerState>();
    ticket = pending->ticket.as<unsigned>();
    policy = pending->policy;
    loss = Scalar(pending->loss);
    weight = Scalar(pending->weight, pending->host_weight);
    gradient = pending->gradient.data;
    wide = pending->gradient.dtype == DType::f64;
  }

  /// Returns the initial gradient. `s` becomes the sums with this pass; memory stays. One thread
  /// calls it.
  __device__ double compute(math::LossSums& s) const {
    s = *sums;
    return math::next_initial_gradient(s, *scaler, policy, loss.read(), weight.read());
  }
  /// Writes the initial gradient and the sums. All threads of all blocks call it, after their last
  /// compute().
  __device__ void commit() const {
    if (!is_last_block(ticket) || threadIdx.x != 0) return;
    math::LossSums s;
    const double value = compute(s);
    *sums = s;
    if (wide) {
      *static_cast<double*>(gradient) = value;
    } else {
      *static_cast<float*>(gradient) = static_cast<float>(value);
    }
  }
};

}  // namespace firn::kernels::cuda
