// Scalars of a part of a cycle, which are added up with the gradients of the part. The same code
// runs in a CUDA thread and on the CPU.
#pragma once

#include <cstdint>

#include "kernels/math/loss_sums.h"
#include "kernels/math/macros.h"

namespace firn::math {

/// Scalars of a cycle, or of a part of it, that LossSums has collected.
struct CycleSums {
  std::int64_t micro_steps = 0;
  double weight = 0, loss = 0;
  double unit = 1, scale = 1;               ///< unit and loss scale of the part's gradients
  double weight_total = 0, loss_total = 0;  ///< share of the part in the totals of all cycles

  /// Returns the scalars of a cycle that began when the totals were those of `before`.
  FIRN_HD static CycleSums of(const LossSums& sums, const LossSums& before) noexcept {
    return {sums.micro_steps,
            sums.weight_sum,
            sums.loss_sum,
            sums.unit,
            sums.scale,
            sums.weight_total - before.weight_total,
            sums.loss_total - before.loss_total};
  }
  /// Returns the sums with this cycle after `before`.
  FIRN_HD LossSums after(const LossSums& before) const noexcept {
    LossSums out;
    out.micro_steps = micro_steps;
    out.weight_sum = weight;
    out.loss_sum = loss;
    out.unit = unit;
    out.scale = scale;
    out.weight_total = before.weight_total + weight_total;
    out.loss_total = before.loss_total + loss_total;
    return out;
  }
  /// Adds the scalars, and keeps the unit. Returns the factor for the other's gradients, a power of
  /// two.
  FIRN_HD double add(const CycleSums& other) noexcept {
    micro_steps += other.micro_steps;
    weight += other.weight;
    loss += other.loss;
    weight_total += other.weight_total;
    loss_total += other.loss_total;
    return unit / other.unit;
  }
};

}  // namespace firn::math
