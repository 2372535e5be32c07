// The loss scale: its state, which lives in device memory and may be shared by several optimizers,
// the rules that move it, and the unit in which an optimizer adds up gradients.
#pragma once

#include <cstdint>

#include "kernels/math/macros.h"

namespace firn::math {

/// Constant while an optimizer lives, so it may be an argument of a kernel.
struct ScalePolicy {
  double growth_factor = 2, backoff_factor = 0.5, min = 1, max = 16777216;
  std::int64_t growth_interval = 2000;
  std::int64_t hysteresis = 1;
  std::int32_t refill_on_clean_step = 0;
  std::int32_t dynamic = 0;
  std::int32_t scaled = 0;  ///< 0: no loss scale at all, the unit is 1
};

struct ScalerState {
  double scale = 1;
  std::int64_t clean_steps = 0;      ///< applied steps in a row since it grew, or overflowed
  std::int64_t hysteresis_left = 1;  ///< the overflow that brings it to 0 lowers the scale
  std::int64_t overflows = 0;        ///< cycles lost to an overflow so far
  std::int32_t calibrating = 0;      ///< the next cycle with a gradient sets the scale
  std::int32_t unused = 0;  ///< keeps all bytes defined, since states are compared by bytes
};
static_assert(sizeof(ScalerState) == 4 * 8 + 2 * 4, "no padding");

FIRN_HD inline bool is_power_of_two(double v) {
  int e = 0;
  return v > 0 && v <= 1.7976931348623157e308 && frexp(v, &e) == 0.5;
}

/// 2^round(log2(v)) for 0 < v < infinity.
FIRN_HD inline double nearest_power(double v) {
  int e = 0;
  const double m = frexp(v, &e);  // v = m 2^e, m in [0.5, 1)
  return ldexp(1.0, m < 0.70710678118654752 ? e - 1 : e);
}

/// The unit for a micro-batch of this weight: with it, the gradients of sums are as large as those
/// of means under `scale`. A power of two that f32 holds as a normal number.
FIRN_HD inline double unit_for(double scale, double weight) {
  const double w = weight > 0 && weight <= 1.7976931348623157e308 ? nearest_power(weight) : 1.0;
  const double unit = scale / w;
  return unit < 0x1p-126 ? 0x1p-126 : unit > 0x1p126 ? 0x1p126 : unit;
}

/// Moves the scale at the end of a cycle: after an overflow, or after a step that was applied.
FIRN_HD inline void move_scale(ScalerState& s, const ScalePolicy& p, bool overflow) {
  s.overflows += overflow ? 1 : 0;
  if (!p.dynamic) return;
  if (overflow) {
    s.clean_steps = 0;
    if (s.hysteresis_left > 0) s.hysteresis_left -= 1;
    if (s.hysteresis_left > 0) return;
    const double lower = s.scale * p.backoff_factor;
    if (s.scale > p.min) s.scale = lower > p.min ? lower : p.min;
    return;
  }
  if (p.refill_on_clean_step) s.hysteresis_left = p.hysteresis;
  s.clean_steps += 1;
  if (s.clean_steps < p.growth_interval) return;
  s.clean_steps = 0;
  s.hysteresis_left = p.hysteresis;
  const double higher = s.scale * p.growth_factor;
  if (higher <= p.max) s.scale = higher;
}

/// Sets the scale by hand; the counters of the policy begin anew.
FIRN_HD inline void set_scale(ScalerState& s, const ScalePolicy& p, double scale) {
  s.scale = scale;
  s.clean_steps = 0;
  s.hysteresis_left = p.hysteresis;
  s.calibrating = 0;
}

/// The scale at which a mean gradient with this largest magnitude has 4 bits of headroom in f16.
FIRN_HD inline void calibrate_scale(ScalerState& s, const ScalePolicy& p, double largest) {
  if (!(largest > 0)) return;  // nothing to measure: the next cycle will
  int e = 0;
  frexp(65504.0 / 16 / largest, &e);
  const double scale = ldexp(1.0, e - 1);
  s.scale = scale < p.min ? p.min : scale > p.max ? p.max : scale;
  s.calibrating = 0;
}

}  // namespace firn::math
