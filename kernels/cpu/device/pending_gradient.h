// Computation of a backward pass's initial gradient by one of its kernels on the CPU.
#pragma once

#include "kernels/plan/pending_gradient.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Returns an f32 or f64 scalar as f64.
inline double read_scalar(const ConstView& v) {
  return v.dtype == DType::f64 ? *v.as<double>() : static_cast<double>(*v.as<float>());
}

/// Writes the initial gradient. Returns the sums, which then count this pass.
inline const math::LossSums& compute_initial_gradient(const PendingGradient& p) {
  auto& sums = *p.sums.as<math::LossSums>();
  const double gradient = math::next_initial_gradient(
      sums, *p.scaler.as<math::ScalerState>(), p.policy, read_scalar(p.loss),
      p.weight.data ? read_scalar(p.weight) : p.host_weight);
  if (p.gradient.dtype == DType::f64) {
    *p.gradient.as<double>() = gradient;
  } else {
    *p.gradient.as<float>() = static_cast<float>(gradient);
  }
  return sums;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
