// A hash of a tensor's values, which tells whether they are equal a second time. It is a sum of
// products of 32-bit words with keys that depend on the place: NH of Black, Halevi, Krawczyk,
// Krovetz & Rogaway (1999). Terms are added modulo 2^64, so their order does not matter.
#pragma once

#include <cstdint>

#include "kernels/math/macros.h"

namespace firn::math {

/// The term of 64 bits whose first element has this number in its tensor.
FIRN_HD constexpr std::uint64_t hash_term(std::uint64_t bits, std::uint64_t number) {
  const auto low = static_cast<std::uint32_t>(bits + number * 0x9e3779b1u + 0x7f4a7c15u);
  const auto high = static_cast<std::uint32_t>((bits >> 32) + number * 0x85ebca77u + 0x165667b1u);
  return static_cast<std::uint64_t>(low) * high;
}

}  // namespace firn::math
