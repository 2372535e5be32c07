// Conversion of an image's bytes to a model's input.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// A pixel scaled to [0, 1] and normalised, in compute type V.
template <class V>
FIRN_HD V normalised(std::uint8_t pixel, float mean, float stddev) {
  return (V(pixel) / V(255) - V(mean)) / V(stddev);
}

}  // namespace firn::math
