// Rotary positions (Su et al. 2021, "RoFormer").
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// theta^(-i/pairs): the angle of pair i from one position to the next. In f64, because an angle
/// counts modulo 2 pi, and positions are large.
FIRN_HD inline double rope_frequency(double theta, std::int64_t i, std::int64_t pairs) {
  return exp(-log(theta) * (static_cast<double>(i) / static_cast<double>(pairs)));
}

/// The angle modulo 2 pi, in [-pi, pi].
FIRN_HD inline double rope_angle(std::int64_t position, double frequency) {
  const double angle = static_cast<double>(position) * frequency;
  return angle - 6.283185307179586477 * ::floor(angle * 0.15915494309189533577 + 0.5);
}

/// A pair turned by an angle.
template <class V>
struct Turn {
  V cos, sin;
  FIRN_HD V first(V a, V b) const { return a * cos - b * sin; }
  FIRN_HD V second(V a, V b) const { return b * cos + a * sin; }
};

}  // namespace firn::math
