// Reductions over any axes. The operand is cut into units by its shape alone. A unit gives one
// partial result (or one row of them); partial results are joined in a fixed order. The longest
// chain of additions is about 100 for 2^16 elements and grows by 1 for each further 2^15. So the
// error for K elements stays far below sqrt(K) roundings.
#include "kernels/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/reduce/fold.h"
#include "kernels/math/macros.h"
#include "kernels/plan/reduce_plan.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kBlock = 4096;    // elements folded in one go, and the largest piece loaded
constexpr std::int64_t kUnit = 32768;    // elements of a unit of work
constexpr std::int64_t kUnitRows = 256;  // rows of a unit if rows are folded onto rows
constexpr std::int64_t kTile = 256;      // columns of a unit
constexpr std::int64_t kHalved = 64;     // lines that are halved together

/// Stores results: out = beta*out + scale*result, rounded once.
struct Finish {
  const View& out;
  double scale;
  float beta;

  template <class A>
  void operator()(std::int64_t offset, std::int64_t stride, std::int64_t n,
                  const A* results) const {
    void* dst = advance(out.data, out.dtype, offset);
    if (scale == 1 && beta == 0) return store_row(results, dst, out.dtype, stride, n);
    if constexpr (std::is_same_v<A, std::int64_t>) {
      if (!is_floating(out.dtype)) return scaled<std::int64_t>(dst, stride, n, results);
    }
    scaled<double>(dst, stride, n, results);
  }

 private:
  template <class C, class A>
  void scaled(void* dst, std::int64_t stride, std::int64_t n, const A* results) const {
    using V = math::Arithmetic<C>;
    const V a(scale), b(static_cast<double>(beta));
    alignas(64) C old[kTile];
    alignas(64) C sum[kTile];
    while (n > 0) {
      const std::int64_t m = std::min(n, kTile);
      for (std::int64_t i = 0; i < m; ++i) sum[i] = math::plain(a * V(static_cast<C>(results[i])));
      if (beta != 0) {
        const C* before = load_row<C>(dst, out.dtype, stride, m, old);
        for (std::int64_t i = 0; i < m; ++i) sum[i] = math::plain(V(sum[i]) + b * V(before[i]));
      }
      store_row<C>(sum, dst, out.dtype, stride, m);
      dst = advance(dst, out.dtype, m * stride);
      results += m;
      n -= m;
    }
  }
};

/// Joins a run of n elements, `stride` apart, onto acc.
template <class F, class E, class A>
void fold_run(A* acc, const void* src, DType dtype, std::int64_t stride, std::int64_t n) {
  constexpr bool kAny = std::is_same_v<F, math::AnyFold<A>>;
  constexpr bool kSearches = kAny || std::is_same_v<F, math::AllFold<A>>;
  if (kSearches && dtype == DType::boolean && stride == 1) {  // whose bytes are 0 or 1
    const bool found = std::memchr(src, kAny, static_cast<std::size_t>(n)) != nullptr;
    *acc = F::join(*acc, A(found == kAny));
    return;
  }
  alignas(64) E buffer[kBlock];
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t m = std::min(kBlock, n - i);
    fold_dense<F>(acc, load_row<E>(advance(src, dtype, i * stride), dtype, stride, m, buffer), m,
                  1);
  }
}

/// Reduces the inner axis: each output is the fold of plan.reduced.count() runs.
template <class F, class A, class E>
class RunReduction {
 public:
  RunReduction(const ConstView& x, const ReducePlan& plan, const Finish& finish)
      : x_(x),
        plan_(plan),
        finish_(finish),
        runs_(plan.reduced.count()),
        length_(plan.inner.size),
        segments_(math::ceil_div(length_, kUnit)),
        group_(std::max<std::int64_t>(1, kUnit / length_)),
        units_(segments_ > 1 ? runs_ * segments_ : math::ceil_div(runs_, group_)) {}

  void run() const {
    const std::int64_t work = plan_.outputs * plan_.reduction;
    if (units_ == 1) {
      const std::int64_t together = std::clamp<std::int64_t>(kUnit / plan_.reduction, 1, kTile);
      parallel_for(math::ceil_div(plan_.outputs, together), work, [&](std::int64_t i) {
        finish_outputs(i * together, std::min(plan_.outputs, (i + 1) * together),
                       [&](std::int64_t offset, std::int64_t) { return unit(offset, 0); });
      });
      return;
    }
    const Workspace workspace({plan_.outputs * units_}, dtype_of<A>);
    A* const partial = workspace.view().template as<A>();
    parallel_for(plan_.outputs * units_, work, [&](std::int64_t i) {
      partial[i] = unit(plan_.kept.at(i / units_).x, i % units_);
    });
    const std::int64_t chunks = math::ceil_div(plan_.outputs, kTile);
    parallel_for(chunks, plan_.outputs * units_, [&](std::int64_t i) {
      finish_outputs(i * kTile, std::min(plan_.outputs, (i + 1) * kTile),
                     [&](std::int64_t, std::int64_t output) {
                       A acc = F::identity();
                       fold_run<typename F::Join, A>(&acc, partial + output * units_, dtype_of<A>,
                                                     1, units_);
                       return acc;
                     });
    });
  }

 private:
  /// Stores result(offset in x, flat index) for the outputs [begin, end), at most kTile of them.
  template <class Fn>
  void finish_outputs(std::int64_t begin, std::int64_t end, Fn&& result) const {
    plan_.kept.runs(begin, end, [&](const ReduceAxis& at, std::int64_t n, std::int64_t index) {
      const ReduceAxis step = plan_.kept.size() > 0 ? plan_.kept.back() : ReduceAxis{};
      alignas(64) A results[kTile];
      for (std::int64_t k = 0; k < n; ++k) results[k] = result(at.x + k * step.x, index + k);
      finish_(at.out, step.out, n, results);
    });
  }

  /// Returns partial result u of the output that starts at `offset`.
  A unit(std::int64_t offset, std::int64_t u) const {
    const std::int64_t stride = plan_.inner.x;
    A acc = F::identity();
    if (segments_ > 1) {
      const std::int64_t begin = u % segments_ * kUnit;
      fold_run<F, E>(&acc, at(offset + plan_.reduced.at(u / segments_).x + begin * stride),
                     x_.dtype, stride, std::min(kUnit, length_ - begin));
      return acc;
    }
    const std::int64_t first = u * group_;
    const std::int64_t last = std::min(runs_, first + group_);
    if (length_ >= kLanes || last - first == 1) {
      plan_.reduced.runs(first, last, [&](const ReduceAxis& o, std::int64_t n, std::int64_t) {
        for (std::int64_t k = 0; k < n; ++k) {
          const std::int64_t row = n == 1 ? 0 : k * plan_.reduced.back().x;
          fold_run<F, E>(&acc, at(offset + o.x + row), x_.dtype, stride, length_);
        }
      });
      return acc;
    }
    alignas(64) E buffer[kBlock];  // short runs are collected first
    std::int64_t filled = 0;
    plan_.reduced.runs(first, last, [&](const ReduceAxis& o, std::int64_t n, std::int64_t) {
      for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t row = n == 1 ? 0 : k * plan_.reduced.back().x;
        E* to = buffer + filled;
        const E* from = load_row<E>(at(offset + o.x + row), x_.dtype, stride, length_, to);
        if (from != to) std::copy_n(from, length_, to);
        filled += length_;
        if (filled + length_ > kBlock) {
          fold_dense<F>(&acc, buffer, filled, 1);
          filled = 0;
        }
      }
    });
    if (filled > 0) fold_dense<F>(&acc, buffer, filled, 1);
    return acc;
  }

  const void* at(std::int64_t offset) const { return advance(x_.data, x_.dtype, offset); }

  const ConstView& x_;
  const ReducePlan& plan_;
  const Finish& finish_;
  std::int64_t runs_;      // runs per output
  std::int64_t length_;    // elements of a run
  std::int64_t segments_;  // units per run, if a run is longer than a unit
  std::int64_t group_;     // runs per unit, if it is not
  std::int64_t units_;     // units per output
};

/// Keeps the inner axis: rows are folded onto rows, tile by tile. Those of a plan that
/// run_across() made are folded as runs.
template <class F, class A, class E>
class RowReduction {
 public:
  RowReduction(const ConstView& x, const ReducePlan& plan, const Finish& finish, bool across)
      : x_(x),
        plan_(plan),
        finish_(finish),
        rows_(plan.reduced.count()),
        width_(plan.inner.size),
        across_(across),
        dense_(!across && width_ <= kLanes / 2 && plan.inner.x == 1 && plan.reduced.size() == 1 &&
               plan.reduced.back().x == width_),
        unit_rows_(dense_ ? kUnit / width_ : kUnitRows),
        tiles_(math::ceil_div(width_, kTile)) {}

  void run() const {
    const std::int64_t work = plan_.outputs * width_ * rows_;
    std::int64_t units = math::ceil_div(rows_, unit_rows_);
    if (units == 1) {
      each_tile(1, work, [&](std::int64_t block, std::int64_t, std::int64_t c, std::int64_t n) {
        alignas(64) A acc[kTile];
        const ReduceAxis at = plan_.kept.at(block);
        unit(acc, at.x, 0, rows_, c, n);
        finish_(at.out + c * plan_.inner.out, plan_.inner.out, n, acc);
      });
      return;
    }
    Workspace partial({plan_.outputs * units * width_}, dtype_of<A>);
    each_tile(units, work, [&](std::int64_t block, std::int64_t u, std::int64_t c, std::int64_t n) {
      unit(partial.view().template as<A>() + (block * units + u) * width_ + c,
           plan_.kept.at(block).x, u * unit_rows_, std::min(rows_, (u + 1) * unit_rows_), c, n);
    });
    while (units > kUnitRows) {  // until one more pass can finish
      const std::int64_t fewer = math::ceil_div(units, kUnitRows);
      Workspace next({plan_.outputs * fewer * width_}, dtype_of<A>);
      each_tile(fewer, plan_.outputs * units * width_,
                [&](std::int64_t block, std::int64_t u, std::int64_t c, std::int64_t n) {
                  const std::int64_t begin = u * kUnitRows;
                  join(next.view().template as<A>() + (block * fewer + u) * width_ + c,
                       partial.view().template as<A>() + (block * units + begin) * width_ + c,
                       std::min(kUnitRows, units - begin), n);
                });
      partial = std::move(next);
      units = fewer;
    }
    each_tile(1, plan_.outputs * units * width_,
              [&](std::int64_t block, std::int64_t, std::int64_t c, std::int64_t n) {
                alignas(64) A acc[kTile];
                join(acc, partial.view().template as<A>() + block * units * width_ + c, units, n);
                finish_(plan_.kept.at(block).out + c * plan_.inner.out, plan_.inner.out, n, acc);
              });
  }

 private:
  /// Calls fn(output block, unit, first column, columns) for all of them.
  template <class Fn>
  void each_tile(std::int64_t units, std::int64_t work, Fn&& fn) const {
    parallel_for(plan_.outputs * units * tiles_, work, [&](std::int64_t i) {
      const std::int64_t c = i % tiles_ * kTile;
      const std::int64_t u = i / tiles_;
      fn(u / units, u % units, c, std::min(kTile, width_ - c));
    });
  }

  void join(A* acc, const A* rows, std::int64_t count, std::int64_t n) const {
    std::fill_n(acc, n, F::identity());
    fold_rows<typename F::Join>(acc, rows, width_, count, n);
  }

  /// acc[0 .. n) = fold of rows [begin, end) in columns c, c+1, ...
  void unit(A* acc, std::int64_t offset, std::int64_t begin, std::int64_t end, std::int64_t c,
            std::int64_t n) const {
    std::fill_n(acc, n, F::identity());
    alignas(64) E buffer[kBlock];
    if (dense_) {
      const std::int64_t together = kBlock / width_;
      for (std::int64_t r = begin; r < end; r += together) {
        const std::int64_t m = std::min(together, end - r);
        fold_dense<F>(acc, load_row<E>(at(offset + r * width_), x_.dtype, 1, m * n, buffer), m, n);
      }
      return;
    }
    if (across_) {
      const std::int64_t together = rows_ <= kInOrder ? kBlock / rows_ : kHalved;
      for (std::int64_t k = 0; k < n; k += together)
        unit_across(acc + k, offset + (c + k) * plan_.inner.x, std::min(together, n - k), buffer);
      return;
    }
    const std::int64_t step = plan_.reduced.size() > 0 ? plan_.reduced.back().x : 0;
    const bool direct = x_.dtype == dtype_of<E> && plan_.inner.x == 1;
    plan_.reduced.runs(begin, end, [&](const ReduceAxis& o, std::int64_t count, std::int64_t) {
      const std::int64_t from = offset + o.x + c * plan_.inner.x;
      if (direct) return fold_rows<F>(acc, static_cast<const E*>(at(from)), step, count, n);
      for (std::int64_t r = 0; r < count; r += kRowsAtOnce) {
        const std::int64_t m = std::min(kRowsAtOnce, count - r);
        for (std::int64_t k = 0; k < m; ++k) {
          E* to = buffer + k * kTile;
          const E* row = load_row<E>(at(from + (r + k) * step), x_.dtype, plan_.inner.x, n, to);
          if (row != to) std::copy_n(row, n, to);
        }
        fold_rows<F>(acc, buffer, kTile, m, n);
      }
    });
  }

  /// acc[0 .. n) = fold of all rows, as fold_dense() folds each column. Those of a dense x are
  /// lines, which are turned. The longer ones are halved before, while a register has elements of
  /// one line.
  void unit_across(A* acc, std::int64_t offset, std::int64_t n, E* buffer) const {
    using J = typename F::Join;
    constexpr std::int64_t kHalf = kLanes / 2;
    alignas(64) A lanes[kBlock + kLanes];
    alignas(64) E turned[kBlock];
    const std::int64_t next = plan_.inner.x, step = plan_.reduced.back().x, size = n * rows_;
    const bool lines = step == 1 && next == rows_;
    if (lines) {
      const E* const block = load_row<E>(at(offset), x_.dtype, 1, size, buffer);
      if (rows_ > kInOrder) {
        alignas(64) A halves[kHalved * kHalf], quarters[kHalved * kInOrder];
        for (std::int64_t i = 0; i < size; ++i) lanes[i] = lifted<F, A>(block[i]);
        std::fill_n(lanes + size, kLanes, A(0));
        const A* from = lanes;
        std::int64_t ld = rows_, rows = rows_;
        if (rows > kHalf) {
          fold_halves<J, kHalf>(halves, from, ld, rows, n);
          from = halves;
          ld = kHalf;
          rows -= rows / 2;
        }
        fold_halves<J, kInOrder>(quarters, from, ld, rows, n);
        turn(quarters, kInOrder, n, kInOrder, lanes, n);
        return fold_pairs<J>(acc, lanes, rows - rows / 2, n);
      }
      turn(block, rows_, n, rows_, turned, n);
    } else {
      for (std::int64_t r = 0; r < rows_; ++r) {
        E* const to = turned + r * n;
        const E* const row = load_row<E>(at(offset + r * step), x_.dtype, next, n, to);
        if (row != to) std::copy_n(row, n, to);
      }
    }
    if (rows_ <= kInOrder) {
      for (std::int64_t r = 0; r < rows_; ++r) fold_rows<F>(acc, turned + r * n, n, 1, n);
      return;
    }
    for (std::int64_t i = 0; i < size; ++i) lanes[i] = lifted<F, A>(turned[i]);
    fold_pairs<J>(acc, lanes, rows_, n);
  }

  const void* at(std::int64_t offset) const { return advance(x_.data, x_.dtype, offset); }

  const ConstView& x_;
  const ReducePlan& plan_;
  const Finish& finish_;
  std::int64_t rows_;
  std::int64_t width_;
  bool across_;  // true for the plan of run_across()
  bool dense_;   // true for narrow rows without gaps
  std::int64_t unit_rows_;
  std::int64_t tiles_;
};

template <template <class> class Fold, class E>
void reduce_as(const ConstView& x, const View& out, const Finish& finish) {
  using A = math::FoldType<Fold, E>;
  using F = Fold<A>;
  if (out.numel() == 0) return;
  if (x.numel() == 0) {  // every output is the identity: 0 for a sum
    if (runtime::dry_run()) return;
    const A nothing = F::identity();
    AxisList all;
    for (int i = 0; i < out.rank(); ++i) all.push_back({out.shape[i], 0, out.strides[i], 0});
    all.runs(0, all.count(), [&](const ReduceAxis& at, std::int64_t n, std::int64_t) {
      for (std::int64_t k = 0; k < n; ++k)
        finish(at.out + k * (n == 1 ? 0 : all.back().out), 1, 1, &nothing);
    });
    return;
  }
  ReducePlan plan = plan_reduction(x, out);
  // The compiler decides whether a square of f64 is rounded before it is added (FMA).
  constexpr bool kAnyLoop = !std::is_same_v<F, SumSquaresFold<double>> || sizeof(E) == 4;
  const bool across = kAnyLoop && run_across(plan, plan.columns ? kInOrder : kLanes);
  if (plan.columns) {
    RowReduction<F, A, E>(x, plan, finish, across).run();
  } else {
    RunReduction<F, A, E>(x, plan, finish).run();
  }
}

template <template <class> class Fold>
void reduce_with(const ConstView& x, const View& out, const Finish& finish) {
  switch (compute_dtype(x.dtype)) {
    case DType::f32:
      return reduce_as<Fold, float>(x, out, finish);
    case DType::f64:
      return reduce_as<Fold, double>(x, out, finish);
    default:
      return reduce_as<Fold, std::int64_t>(x, out, finish);
  }
}

}  // namespace

void reduce(ReduceOp op, const ConstView& x, const View& out, double scale, float beta, Stream) {
  switch (op) {
#define FIRN_REDUCE(name, fold) \
  case ReduceOp::name:          \
    return reduce_with<math::fold>(x, out, {out, scale, beta});
    FIRN_REDUCTIONS(FIRN_REDUCE)
#undef FIRN_REDUCE
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
