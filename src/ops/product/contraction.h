// Tensors whose axes have letters, and the sum of products of two of them, for einsum(),
// tensordot() and vecdot().
#pragma once

#include <cstdint>

#include "ops/common.h"

namespace firn::ops {

/// A set of letters, which are numbers below 64.
using Letters = std::uint64_t;
constexpr Letters letter(std::int64_t i) noexcept { return Letters{1} << i; }
Letters set_of(const Dims& letters) noexcept;

/// A tensor with a letter for each axis, no two equal.
struct Lettered {
  Tensor x;
  Dims letters;
};

/// Returns t without its axes of size 1, a view. Afterwards a letter has one size wherever it
/// occurs, and arranged() brings the axes back.
Lettered without_ones(const Lettered& t);

/// Returns the sum of t over its letters outside of `keep`; t itself if there are none.
Lettered summed_to(const Lettered& t, Letters keep);

/// Returns the sum of the products of a and b over the letters outside of `keep`. Neither has axes
/// of size 1. Letters in `order` come first in the result's memory if that costs nothing.
Lettered contract(Lettered a, Lettered b, Letters keep, const Dims& order);

/// Returns a view of t with these axes, which include all letters of t; others have size 1.
Tensor arranged(const Lettered& t, const Dims& letters);

}  // namespace firn::ops
