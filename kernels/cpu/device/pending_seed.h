// How a kernel on the CPU computes the seed that its backward pass begins with.
#pragma once

#include "kernels/plan/pending_seed.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// An f32 or f64 scalar.
inline double read_scalar(const ConstView& v) {
  return v.dtype == DType::f64 ? *v.as<double>() : static_cast<double>(*v.as<float>());
}

/// Writes the seed. Returns the sums, in which this pass is counted.
inline const math::SeedSums& compute_seed(const PendingSeed& p) {
  auto& sums = *p.sums.as<math::SeedSums>();
  const double seed =
      math::next_seed(sums, *p.scaler.as<math::ScalerState>(), p.policy, read_scalar(p.loss),
                      p.weight.data ? read_scalar(p.weight) : p.host_weight);
  if (p.seed.dtype == DType::f64) {
    *p.seed.as<double>() = seed;
  } else {
    *p.seed.as<float>() = static_cast<float>(seed);
  }
  return sums;
}

}  // namespace firn::kernels::cpu::FIRN_ISA
