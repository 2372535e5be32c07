// Combination of values in reductions and scans, and tests for extrema. A new reduction is a struct
// and an entry in FIRN_REDUCTIONS; a new scan of one operand likewise in FIRN_SCANS.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/math/integer.h"

namespace firn::math {

/// A reduction of values of the compute type A: join(a, f(x)), starting at identity. Sums of
/// integers wrap around.
template <class A>
struct SumFold {
  FIRN_HD static constexpr A identity() { return A(0); }
  FIRN_HD static A f(A x) { return x; }
  FIRN_HD static A join(A a, A b) { return plus(a, b); }
  using Join = SumFold;  ///< combines partial results
};
/// Products of integers wrap around.
template <class A>
struct ProdFold {
  FIRN_HD static constexpr A identity() { return A(1); }
  FIRN_HD static A f(A x) { return x; }
  FIRN_HD static A join(A a, A b) { return times(a, b); }
  using Join = ProdFold;
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
/// 1 if an element is not 0, else 0. NaN is not 0.
template <class A>
struct AnyFold {
  FIRN_HD static constexpr A identity() { return A(0); }
  FIRN_HD static A f(A x) { return x != A(0) ? A(1) : A(0); }
  FIRN_HD static A join(A a, A b) { return b > a ? b : a; }
  using Join = MaxFold<A>;
};
/// 1 if no element is 0, else 0.
template <class A>
struct AllFold {
  FIRN_HD static constexpr A identity() { return A(1); }
  FIRN_HD static A f(A x) { return x != A(0) ? A(1) : A(0); }
  FIRN_HD static A join(A a, A b) { return b < a ? b : a; }
  using Join = MinFold<A>;
};

/// The type in which a fold joins numbers of the compute type A. Squares of f32 overflow or vanish
/// where their root is an ordinary number; in f64 they do neither.
template <template <class> class Fold, class A>
struct FoldedIn {
  using Type = A;
};
template <>
struct FoldedIn<SumSquaresFold, float> {
  using Type = double;
};
template <template <class> class Fold, class A>
using FoldType = typename FoldedIn<Fold, A>::Type;

/// Every reduction: its name in ReduceOp (kernels/reduce.h), and its struct.
#define FIRN_REDUCTIONS(X)       \
  X(sum, SumFold)                \
  X(max, MaxFold)                \
  X(min, MinFold)                \
  X(sum_squares, SumSquaresFold) \
  X(prod, ProdFold)              \
  X(any, AnyFold)                \
  X(all, AllFold)

// ---- Extrema ----

/// True if b replaces a as the maximum: b is larger, or the first NaN. Tiles give a mask.
template <class A>
FIRN_HD auto beats(A b, A a) {
  return (!(b <= a)) & (a == a);
}
/// True if b replaces a as the extremum of a fold, MaxFold or MinFold.
template <class Fold, class A>
FIRN_HD auto beats_in(A b, A a) {
  if constexpr (std::is_same_v<Fold, MinFold<A>>)
    return (!(b >= a)) & (a == a);
  else
    return beats(b, a);
}

template <class A>
FIRN_HD bool is_tie(A x, A extremum) {
  return x == extremum || x != x;  // if any x is NaN, so is the extremum
}

// ---- Scans ----
//
// V is a number (Wrapping for integers) or a tile. A scan is join(s0, s1, ...) of the states of the
// elements so far; join is associative but for rounding, and its left operand comes first.

/// A state of one number.
template <class V>
struct OneNumber {
  V value;
  template <class F>
  FIRN_HD auto map(F f) const -> OneNumber<decltype(f(value))> {
    return {f(value)};
  }
};
template <class V>
struct SumScan {
  using State = OneNumber<V>;
  FIRN_HD static State identity() { return {V(0)}; }
  FIRN_HD static State lift(V x, V) { return {x}; }
  FIRN_HD static State join(State a, State b) { return {a.value + b.value}; }
  FIRN_HD static V value(State s) { return s.value; }
};
template <class V>
struct ProdScan {
  using State = OneNumber<V>;
  FIRN_HD static State identity() { return {V(1)}; }
  FIRN_HD static State lift(V x, V) { return {x}; }
  FIRN_HD static State join(State a, State b) { return {a.value * b.value}; }
  FIRN_HD static V value(State s) { return s.value; }
};

/// A state of two numbers.
template <class V>
struct TwoNumbers {
  V first, second;
  template <class F>
  FIRN_HD auto map(F f) const -> TwoNumbers<decltype(f(first))> {
    return {f(first), f(second)};
  }
};
/// log(e^x0 + e^x1 + ...), as the largest x and the sum of e^(x - largest): no sum overflows, and
/// only terms too small to matter underflow.
template <class V>
struct LogSumExpScan {
  using State = TwoNumbers<V>;
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  FIRN_HD static State identity() { return {V(kNone), V(0)}; }
  FIRN_HD static State lift(V x, V) { return {x, V(1)}; }
  FIRN_HD static State join(State a, State b) {
    // Equal infinities have no difference; a NaN stays in the sum.
    const auto same = a.first == b.first;
    const V part = exp(-abs(where(same, V(0), a.first) - where(same, V(0), b.first)));
    const auto left = a.first >= b.first;
    return {where(left, a.first, b.first),
            where(left, a.second + b.second * part, a.second * part + b.second)};
  }
  FIRN_HD static V value(State s) { return s.first + log(s.second); }
};
/// y = b + a y', y' the value before and a, b the operands: the state is the map from y'.
template <class V>
struct LinearScan {
  using State = TwoNumbers<V>;
  FIRN_HD static State identity() { return {V(1), V(0)}; }
  FIRN_HD static State lift(V a, V b) { return {a, b}; }
  FIRN_HD static State join(State s, State t) {
    return {t.first * s.first, t.second + t.first * s.second};
  }
  FIRN_HD static V value(State s) { return s.second; }
};

/// The largest or smallest element and its position. A later one wins if it is equal; NaN wins
/// over all numbers, and a later NaN over an earlier one.
template <class V, class P>
struct Extreme {
  V value;
  P position;
  template <class F>
  FIRN_HD auto map(F f) const -> Extreme<decltype(f(value)), decltype(f(position))> {
    return {f(value), f(position)};
  }
};
template <bool kLargest, class V, class P>
struct ExtremeScan {
  using State = Extreme<V, P>;
  /// Position -1: every element beats it.
  FIRN_HD static State identity(V least) { return {least, P(-1)}; }
  FIRN_HD static State join(State a, State b) {
    const auto later = wins(b.value, a.value);
    return {where(later, b.value, a.value), where(later, b.position, a.position)};
  }
  /// True if b, which comes after a, replaces it.
  FIRN_HD static auto wins(V b, V a) {
    const auto reaches = choose(b, a);
    const auto is_nan = b != b;
    return reaches | is_nan;
  }

 private:
  FIRN_HD static auto choose(V b, V a) {
    if constexpr (kLargest)
      return b >= a;
    else
      return b <= a;
  }
};

/// Every scan of one operand: its name in ScanOp (kernels/scan.h), its struct, and whether integers
/// have it.
#define FIRN_SCANS(X)     \
  X(sum, SumScan, true)   \
  X(prod, ProdScan, true) \
  X(logsumexp, LogSumExpScan, false)

}  // namespace firn::math
