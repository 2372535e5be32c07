// The inner loops of the reductions: folding rows onto rows, and a run of memory onto a few values.
// Each uses independent lanes in a fixed pattern. So it vectorises without flags that allow
// reordering, its result depends on the lengths alone, and its rounding errors stay small.
// Elements are of a type E; A, in which they are joined, is E or wider.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/math/fold.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

using math::MaxFold;
using math::MinFold;
using math::SumFold;
using math::SumSquaresFold;

/// Returns F::f of an element.
template <class F, class A, class E>
A lifted(E x) {
  return F::f(static_cast<A>(x));
}

/// Number of rows folded per pass over the accumulators.
inline constexpr std::int64_t kRowsAtOnce = 8;

/// Joins acc[0 .. width) with `rows` rows of x, `step` elements apart.
template <class F, class A, class E>
void fold_rows(A* __restrict acc, const E* x, std::int64_t step, std::int64_t rows,
               std::int64_t width) {
  std::int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce, x += kRowsAtOnce * step) {
    for (std::int64_t c = 0; c < width; ++c) {
      const E* p = x + c;
      const A a = F::join(lifted<F, A>(p[0]), lifted<F, A>(p[step]));
      const A b = F::join(lifted<F, A>(p[2 * step]), lifted<F, A>(p[3 * step]));
      const A d = F::join(lifted<F, A>(p[4 * step]), lifted<F, A>(p[5 * step]));
      const A e = F::join(lifted<F, A>(p[6 * step]), lifted<F, A>(p[7 * step]));
      acc[c] = F::join(acc[c], F::join(F::join(a, b), F::join(d, e)));
    }
  }
  for (; r < rows; ++r, x += step) {
    for (std::int64_t c = 0; c < width; ++c) acc[c] = F::join(acc[c], lifted<F, A>(x[c]));
  }
}

/// Width of the accumulators of a dense fold.
inline constexpr std::int64_t kLanes = 64;
/// Up to this many elements are joined one after another.
inline constexpr std::int64_t kInOrder = kLanes / 4;

/// Does what fold_rows() does, to the bit, for dense rows of kLanes elements. It reads them in
/// memory order, which the hardware prefetches, and itself prefetches further ahead.
template <class F, class A, class E>
void fold_lanes(A* __restrict acc, const E* x, std::int64_t rows) {
  constexpr std::int64_t kLine = 64 / sizeof(E), kAhead = 64 * kLine;
  std::int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce, x += kRowsAtOnce * kLanes) {
    A pairs[kRowsAtOnce / 2][kLanes];
    for (std::int64_t k = 0; k < kRowsAtOnce / 2; ++k) {
      const E* const p = x + 2 * k * kLanes;
      for (std::int64_t c = 0; c < 2 * kLanes; c += kLine) __builtin_prefetch(p + c + kAhead);
      for (std::int64_t c = 0; c < kLanes; ++c)
        pairs[k][c] = F::join(lifted<F, A>(p[c]), lifted<F, A>(p[kLanes + c]));
    }
    for (std::int64_t c = 0; c < kLanes; ++c) {
      const A low = F::join(pairs[0][c], pairs[1][c]), high = F::join(pairs[2][c], pairs[3][c]);
      acc[c] = F::join(acc[c], F::join(low, high));
    }
  }
  fold_rows<F>(acc, x, kLanes, rows - r, kLanes);
}

/// Joins acc[0 .. n) with `rows` > 0 dense rows of n elements, pairwise. The rows are overwritten.
template <class J, class A>
void fold_pairs(A* __restrict acc, A* __restrict lanes, std::int64_t rows, std::int64_t n) {
  while (rows > 1) {
    const std::int64_t half = rows / 2;
    const std::int64_t far = (rows - half) * n;
    for (std::int64_t i = 0; i < half * n; ++i) lanes[i] = J::join(lanes[i], lanes[far + i]);
    rows -= half;
  }
  for (std::int64_t c = 0; c < n; ++c) acc[c] = J::join(acc[c], lanes[c]);
}

/// Joins both halves of n lines of `rows` <= 2 kWidth elements, `from` of which are `ld` apart: to
/// [n, kWidth] begins with the rows - rows / 2 elements that fold_pairs() has after its first pass.
/// It reads up to kLanes elements after the last line, whose values do not matter. If it were
/// inlined, GCC would forget that its operands are apart.
template <class J, int kWidth, class A>
[[gnu::noinline]] void fold_halves(A* __restrict to, const A* __restrict from, std::int64_t ld,
                                   std::int64_t rows, std::int64_t n) {
  const std::int64_t half = rows / 2, far = rows - half;
  std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t> paired[kWidth];
  for (int c = 0; c < kWidth; ++c) paired[c] = c < half;
  for (std::int64_t i = 0; i < n; ++i, from += ld, to += kWidth)
    for (int c = 0; c < kWidth; ++c) {
      const A other = from[far + c];
      to[c] = J::join(from[c], paired[c] != 0 ? other : J::identity());
    }
}

/// Joins acc[0 .. n) with `rows` dense rows of n <= kLanes / 2 elements. Several rows side by side
/// make one wide enough for vectors; the lanes are joined pairwise at the end.
template <class F, class A, class E>
void fold_dense(A* __restrict acc, const E* x, std::int64_t rows, std::int64_t n) {
  using J = typename F::Join;
  if (rows * n <= kInOrder) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t c = 0; c < n; ++c) acc[c] = F::join(acc[c], lifted<F, A>(x[i * n + c]));
    }
    return;
  }
  alignas(64) A lanes[kLanes];
  std::int64_t side = kLanes / n < rows ? kLanes / n : rows;
  const std::int64_t width = side * n;
  for (std::int64_t i = 0; i < width; ++i) lanes[i] = lifted<F, A>(x[i]);
  const std::int64_t passes = rows / side - 1;
  if (width == kLanes) {
    fold_lanes<F>(lanes, x + kLanes, passes);
  } else {
    fold_rows<F>(lanes, x + width, width, passes, width);
  }
  const std::int64_t done = (passes + 1) * width;
  for (std::int64_t i = 0; i < rows * n - done; ++i)
    lanes[i] = F::join(lanes[i], lifted<F, A>(x[done + i]));
  fold_pairs<J>(acc, lanes, side, n);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
