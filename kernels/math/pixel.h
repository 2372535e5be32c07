// Pixels as a model sees them.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// A pixel as a model sees it, in compute type V.
template <class V>
FIRN_HD V normalised(std::uint8_t pixel, float mean, float stddev) {
  return (V(pixel) / V(255) - V(mean)) / V(stddev);
}

}  // namespace firn::math
