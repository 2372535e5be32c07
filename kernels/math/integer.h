// Integers without undefined behaviour: arithmetic that wraps around, and conversion from floating
// numbers.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/math/macros.h"

namespace firn::math {

/// The ends of an integer type, as constants: device code may not call std::numeric_limits.
template <class I>
struct IntegerRange {
  static constexpr I least = std::numeric_limits<I>::min();
  static constexpr I most = std::numeric_limits<I>::max();
};

/// x truncated toward zero and clamped to the range of the integer type To; 0 for NaN.
template <class To, class From>
FIRN_HD constexpr To to_integer(From x) {
  constexpr To kLeast = IntegerRange<To>::least, kMost = IntegerRange<To>::most;
  // Powers of two, which are exact in every floating type; kMost may not be.
  constexpr From kBelow = static_cast<From>(kLeast);
  constexpr From kPast = static_cast<From>(kMost / 2 + 1) * From(2);
  const bool inside = x >= kBelow && x < kPast;
  const To whole = static_cast<To>(inside ? x : From(0));
  return inside ? whole : x >= kPast ? kMost : x < kBelow ? kLeast : To(0);
}

/// A 64-bit integer whose sums and products wrap around, as the V of a formula.
struct Wrapping {
  std::int64_t n = 0;

  Wrapping() = default;
  FIRN_HD constexpr explicit Wrapping(int v) : n(v) {}
  FIRN_HD constexpr explicit Wrapping(std::int64_t v) : n(v) {}
  FIRN_HD constexpr explicit Wrapping(double v) : n(to_integer<std::int64_t>(v)) {}

  FIRN_HD friend constexpr Wrapping operator+(Wrapping a, Wrapping b) {
    return of(bits(a) + bits(b));
  }
  FIRN_HD friend constexpr Wrapping operator-(Wrapping a, Wrapping b) {
    return of(bits(a) - bits(b));
  }
  FIRN_HD friend constexpr Wrapping operator*(Wrapping a, Wrapping b) {
    return of(bits(a) * bits(b));
  }
  FIRN_HD friend constexpr Wrapping operator-(Wrapping a) { return of(0 - bits(a)); }
  FIRN_HD friend constexpr Wrapping operator&(Wrapping a, Wrapping b) {
    return of(bits(a) & bits(b));
  }
  FIRN_HD friend constexpr Wrapping operator|(Wrapping a, Wrapping b) {
    return of(bits(a) | bits(b));
  }
  FIRN_HD friend constexpr Wrapping operator^(Wrapping a, Wrapping b) {
    return of(bits(a) ^ bits(b));
  }
  FIRN_HD friend constexpr bool operator==(Wrapping a, Wrapping b) { return a.n == b.n; }
  FIRN_HD friend constexpr bool operator!=(Wrapping a, Wrapping b) { return a.n != b.n; }
  FIRN_HD friend constexpr bool operator<(Wrapping a, Wrapping b) { return a.n < b.n; }
  FIRN_HD friend constexpr bool operator<=(Wrapping a, Wrapping b) { return a.n <= b.n; }
  FIRN_HD friend constexpr bool operator>(Wrapping a, Wrapping b) { return a.n > b.n; }
  FIRN_HD friend constexpr bool operator>=(Wrapping a, Wrapping b) { return a.n >= b.n; }

 private:
  FIRN_HD static constexpr std::uint64_t bits(Wrapping a) {
    return static_cast<std::uint64_t>(a.n);
  }
  FIRN_HD static constexpr Wrapping of(std::uint64_t bits) {
    return Wrapping(static_cast<std::int64_t>(bits));
  }
};
FIRN_HD constexpr Wrapping abs(Wrapping x) { return x.n < 0 ? -x : x; }
FIRN_HD constexpr Wrapping floor(Wrapping x) { return x; }
FIRN_HD constexpr Wrapping ceil(Wrapping x) { return x; }
FIRN_HD constexpr Wrapping trunc(Wrapping x) { return x; }
FIRN_HD constexpr Wrapping rint(Wrapping x) { return x; }
/// a - b trunc(a/b). If b is 0 it is a (Knuth, The Art of Computer Programming, 1.2.4), since a
/// kernel cannot throw. -1 divides every number, also the least, whose quotient overflows.
FIRN_HD constexpr Wrapping fmod(Wrapping a, Wrapping b) {
  return b.n == 0 ? a : b.n == -1 ? Wrapping(0) : Wrapping(a.n % b.n);
}

/// a^b, wrapping around. A negative b gives the whole part of a^b: 0 but for a = 1 and a = -1; a =
/// 0 gives 0, since a kernel cannot throw.
FIRN_HD constexpr Wrapping pow(Wrapping a, Wrapping b) {
  if (b.n < 0)
    return a.n == 1 || (a.n == -1 && b.n % 2 == 0) ? Wrapping(1)
           : a.n == -1                             ? Wrapping(-1)
                                                   : Wrapping(0);
  Wrapping result(1);
  for (std::int64_t left = b.n; left > 0; left /= 2) {
    if (left % 2 == 1) result = result * a;
    a = a * a;
  }
  return result;
}

/// The type in which a compute type's arithmetic runs.
template <class C>
using Arithmetic = std::conditional_t<std::is_same_v<C, std::int64_t>, Wrapping, C>;

/// The result of such arithmetic as a number of the compute type.
template <class V>
FIRN_HD constexpr auto plain(V x) {
  if constexpr (std::is_same_v<V, Wrapping>) {
    return x.n;
  } else {
    return x;
  }
}
/// a + b and a * b in a compute type.
template <class C>
FIRN_HD constexpr C plus(C a, C b) {
  return plain(Arithmetic<C>(a) + Arithmetic<C>(b));
}
template <class C>
FIRN_HD constexpr C times(C a, C b) {
  return plain(Arithmetic<C>(a) * Arithmetic<C>(b));
}

}  // namespace firn::math
