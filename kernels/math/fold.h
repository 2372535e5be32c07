// How reductions combine values, and which elements hold an extremum.
#pragma once

#include <limits>

#include "kernels/math/integer.h"

namespace firn::math {

/// A reduction of values of the compute type A: join(a, f(x)), starting at identity. Sums of
/// integers wrap around.
template <class A>
struct SumFold {
  FIRN_HD static constexpr A identity() { return A(0); }
  FIRN_HD static A f(A x) { return x; }
  FIRN_HD static A join(A a, A b) { return plus(a, b); }
  using Join = SumFold;  ///< how partial results are combined
};
template <class A>
struct SumSquaresFold {
  FIRN_HD static constexpr A identity() { return A(0); }
  FIRN_HD static A f(A x) { return times(x, x); }
  FIRN_HD static A join(A a, A b) { return plus(a, b); }
  using Join = SumFold<A>;
};
/// NaN wins: it fails every comparison, so once in `a` only another NaN replaces it.
template <class A>
struct MaxFold {
  static constexpr A kNone = std::numeric_limits<A>::has_infinity
                                 ? -std::numeric_limits<A>::infinity()
                                 : std::numeric_limits<A>::min();
  FIRN_HD static constexpr A identity() { return kNone; }
  FIRN_HD static A f(A x) { return x; }
  FIRN_HD static A join(A a, A b) {
    const A m = b > a ? b : a;
    return b != b ? b : m;
  }
  using Join = MaxFold;
};
template <class A>
struct MinFold {
  static constexpr A kNone = std::numeric_limits<A>::has_infinity
                                 ? std::numeric_limits<A>::infinity()
                                 : std::numeric_limits<A>::max();
  FIRN_HD static constexpr A identity() { return kNone; }
  FIRN_HD static A f(A x) { return x; }
  FIRN_HD static A join(A a, A b) {
    const A m = b < a ? b : a;
    return b != b ? b : m;
  }
  using Join = MinFold;
};

// ---- Extrema ----

/// Whether b replaces a as the maximum: b is larger, or the first NaN. Tiles give a mask.
template <class A>
FIRN_HD auto beats(A b, A a) {
  return (!(b <= a)) & (a == a);
}

template <class A>
FIRN_HD bool is_tie(A x, A extremum) {
  return x == extremum || x != x;  // if any x is NaN, so is the extremum
}

}  // namespace firn::math
