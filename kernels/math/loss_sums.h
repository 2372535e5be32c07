// The initial gradient of a backward pass whose gradients are added to those of other passes. The
// passes share data in device memory, and one kernel of each pass computes its initial gradient.
// The same code runs in a CUDA thread and on the CPU.
#pragma once

#include <cstdint>

#include "kernels/math/macros.h"
#include "kernels/math/optim/loss_scale.h"

namespace firn::math {

/// A cycle is a run of backward passes whose gradients are added up. The totals go on from cycle to
/// cycle.
struct LossSums {
  double weight_sum = 0;         ///< sum of the losses' weights
  double loss_sum = 0;           ///< sum of the losses
  std::int64_t micro_steps = 0;  ///< backward passes
  double unit = 1;        ///< gradients are summed as unit * (sum of gradients); a power of two
  double scale = 1;       ///< loss scale that the unit was made from
  double reexpress = 1;   ///< factor from the unit before this pass to the unit of this pass
  double loss_total = 0;  ///< sum of the losses of all cycles, if they and their weights are finite
  double weight_total = 0;  ///< sum of the weights of those losses
};

FIRN_HD inline bool is_finite(double v) { return v - v == 0; }

/// Counts a backward pass whose loss has the value `loss` (a sum) and the denominator `weight`.
/// Returns the initial gradient of the pass: the unit.
///
/// The first pass with a weight chooses the unit. A later pass keeps it if its own unit is within a
/// factor of 2 and the loss scale is the same. Otherwise s.reexpress is a power of two, and the
/// gradients summed so far must be multiplied by it: units never mix, and nothing is rounded (S05).
FIRN_HD inline double next_initial_gradient(LossSums& s, const ScalerState& scaler,
                                            const ScalePolicy& policy, double loss, double weight) {
  s.reexpress = 1;
  if (policy.scaled && (weight > 0 || s.micro_steps == 0)) {
    const double unit = unit_for(scaler.scale, weight);
    const bool first = !(s.weight_sum > 0) && s.micro_steps == 0;
    if (first || s.scale != scaler.scale || unit > 2 * s.unit || 2 * unit < s.unit) {
      if (!first) s.reexpress = unit / s.unit;
      s.unit = unit;
    }
    s.scale = scaler.scale;
  }
  s.weight_sum += weight;
  s.loss_sum += loss;
  s.micro_steps += 1;
  if (is_finite(loss) && is_finite(weight)) {
    s.loss_total += loss;
    s.weight_total += weight;
  }
  return s.unit;
}

}  // namespace firn::math
