// Scans on the CPU. A line is cut into chunks, a chunk into blocks, a block into registers. Each
// element is joined with the lanes, registers, blocks and chunks before it. So the longest chain of
// additions is about 100 for 2^16 elements, and grows by 1 for each further 2^14. Lines side by
// side are scanned at once, one in each lane. If there are fewer lines than threads, chunks are
// scanned at once, after a pass that finds the state before each. This joins in the same order, so
// the bits are equal.
#include "kernels/scan.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/reduce/lanes.h"
#include "kernels/math/fold.h"
#include "kernels/math/macros.h"
#include "kernels/plan/scan_plan.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kBlock = 256;       // elements of a block of a line
constexpr std::int64_t kChunk = 16384;     // elements of a chunk of a line
constexpr std::int64_t kColumnBlock = 64;  // elements of a block of lines side by side
constexpr std::int64_t kColumnChunk = 4096;
constexpr std::int64_t kTile = 256;        // lines scanned side by side
constexpr std::int64_t kLeastColumns = 8;  // fewer are scanned one by one
constexpr std::int64_t kTogether = 16384;  // elements of a piece of work, if lines are short
constexpr std::int64_t kShort = 16;  // lines up to this length are short if lanes are integers

/// A scan of one or two operands (math/fold.h).
template <class C, template <class> class Scan>
struct ValueScan {
  using V = typename Lanes<C>::V;
  using F = Scan<V>;
  using State = typename F::State;
  static constexpr bool kPositions = false;

  static State identity() { return F::identity(); }
  static State lift(V a, V b, V) { return F::lift(a, b); }
  static State join(State a, State b) { return F::join(a, b); }
  static V value(State s) { return F::value(s); }
  /// Returns the state moved by move(fill, numbers), with the identity's numbers as the fill.
  template <class Move>
  static State moved(State s, Move move) {
    State out = identity();
    if constexpr (std::is_same_v<State, math::OneNumber<V>>) {
      out.value = move(out.value, s.value);
    } else {
      out.first = move(out.first, s.first);
      out.second = move(out.second, s.second);
    }
    return out;
  }
};

/// The extremum so far, with its position in the chunk. C's numbers hold the positions exactly.
template <class C, template <class> class Fold>
struct ExtremumScan {
  using V = typename Lanes<C>::V;
  using F = math::ExtremeScan<std::is_same_v<Fold<C>, math::MaxFold<C>>, V, V>;
  using State = typename F::State;
  static constexpr bool kPositions = true;

  static State identity() { return F::identity(V(Fold<C>::identity())); }
  static State lift(V a, V, V position) { return {a, position}; }
  static State join(State a, State b) { return F::join(a, b); }
  static V value(State s) { return s.value; }
  template <class Move>
  static State moved(State s, Move move) {
    const State fill = identity();
    return {move(fill.value, s.value), move(fill.position, s.position)};
  }
};

/// The operands of a scan. b and positions may be absent.
struct Operands {
  const ConstView& a;
  const ConstView& b;
  const View& out;
  const View* positions;
  bool reverse;
  float beta;

  ScanViews views() const {
    return {{&out.strides, &a.strides, &b.strides, positions ? &positions->strides : &out.strides}};
  }
};

template <class S, class C>
class Scanner {
  using L = Lanes<C>;
  using V = typename L::V;
  using State = typename S::State;
  static constexpr std::int64_t kWidth = L::kWidth;
  enum View { kOut, kA, kB, kPosition };

  /// The state before a chunk. `position` counts in the line, and a state's positions in its chunk.
  struct Ahead {
    State state = S::identity();
    std::int64_t position[kWidth] = {};

    /// Joins the chunk that begins at `begin`.
    void join(const State& chunk, std::int64_t begin) {
      state = S::join(state, chunk);
      if constexpr (S::kPositions) {
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const auto at = static_cast<std::int64_t>(L::lane(state.position, i));
          if (at >= 0) position[i] = begin + at;
        }
        state.position = V(-1);
      }
    }
  };

 public:
  Scanner(const Operands& o, int axis)
      : o_(o), plan_(o.out.shape, axis, o.views(), kLeastColumns), walk_(plan_.walk(o.views())) {}

  void run() const {
    const bool columns = plan_.width > 1;
    const std::int64_t n = plan_.length, chunk = columns ? kColumnChunk : kChunk;
    const std::int64_t chunks = math::ceil_div(n, chunk);
    const std::int64_t tiles = math::ceil_div(plan_.width, kTile);
    const std::int64_t units = plan_.groups * tiles,
                       work = units * n * std::min(plan_.width, kTile);
    if (!columns && n <= (kWidth == 1 ? kShort : kWidth) && units > 1 && dense()) {
      const std::int64_t together = kTogether / n;
      parallel_for(math::ceil_div(units, together), work, [&](std::int64_t i) {
        walk_.runs(i * together, std::min(units, (i + 1) * together), kRow / n,
                   [&](const std::int64_t* at, std::int64_t lines) { short_lines(at, lines * n); });
      });
      return;
    }
    const std::int64_t states = states_of(0, tiles);
    if (chunks == 1 || threads_for(units * chunks, work) <= units) {
      const std::int64_t together =
          std::max<std::int64_t>(1, kTogether / (n * (columns ? kTile : 1)));
      parallel_for(math::ceil_div(units, together), work, [&](std::int64_t i) {
        Ahead ahead[kTile / kWidth];
        for (std::int64_t u = i * together; u < std::min(units, (i + 1) * together); ++u) {
          const std::int64_t used = states_of(u, tiles);
          std::fill_n(ahead, used, Ahead());
          for (std::int64_t c = 0; c < chunks; ++c) {
            State total[kTile / kWidth];
            each(u, tiles, c * chunk, std::min(n, (c + 1) * chunk), ahead, total, true);
            for (std::int64_t s = 0; s < used; ++s) ahead[s].join(total[s], c * chunk);
          }
        }
      });
      return;
    }
    const ScratchMemory total_memory(slot_bytes_of<State>(units * chunks * states));
    const ScratchMemory ahead_memory(slot_bytes_of<Ahead>(units * chunks * states));
    if (runtime::dry_run()) return;
    auto* const totals = static_cast<State*>(total_memory.data());
    auto* const aheads = static_cast<Ahead*>(ahead_memory.data());
    parallel_for(units * chunks, work, [&](std::int64_t i) {
      const std::int64_t c = i % chunks;
      if (c + 1 == chunks) return;  // nothing follows
      each(i / chunks, tiles, c * chunk, (c + 1) * chunk, nullptr, totals + i * states, false);
    });
    for (std::int64_t u = 0; u < units; ++u) {
      for (std::int64_t s = 0; s < states_of(u, tiles); ++s) {
        Ahead ahead;
        for (std::int64_t c = 0; c < chunks; ++c) {
          const std::int64_t at = (u * chunks + c) * states + s;
          aheads[at] = ahead;
          if (c + 1 < chunks) ahead.join(totals[at], c * chunk);
        }
      }
    }
    parallel_for(units * chunks, work, [&](std::int64_t i) {
      const std::int64_t c = i % chunks;
      State unused[kTile / kWidth];
      each(i / chunks, tiles, c * chunk, std::min(n, (c + 1) * chunk), aheads + i * states, unused,
           true);
    });
  }

 private:
  /// Number of states of unit u. The first unit has the most.
  std::int64_t states_of(std::int64_t u, std::int64_t tiles) const {
    if (plan_.width == 1) return 1;
    return math::ceil_div(std::min(kTile, plan_.width - u % tiles * kTile), kWidth);
  }
  /// Scans the elements [begin, end) of unit u, a chunk. `total` receives their states. Results are
  /// stored if `store`; `ahead` is the state before them.
  void each(std::int64_t u, std::int64_t tiles, std::int64_t begin, std::int64_t end,
            const Ahead* ahead, State* total, bool store) const {
    walk_.runs(u / tiles, u / tiles + 1, 1, [&](const std::int64_t* at, std::int64_t) {
      if (plan_.width > 1) {
        const std::int64_t first = u % tiles * kTile;
        const std::int64_t n = std::min(kTile, plan_.width - first);
        std::int64_t moved[kScanViews];
        for (int v = 0; v < kScanViews; ++v) moved[v] = at[v] + first * plan_.column[v];
        columns(moved, n, begin, end, ahead, total, store);
      } else if (store) {
        line<true>(at, begin, end, ahead, total);
      } else {
        line<false>(at, begin, end, ahead, total);
      }
    });
  }

  const void* from(const ConstView& x, std::int64_t offset) const {
    return advance(x.data, x.dtype, offset);
  }
  /// Stores n results, plus beta times the old values.
  void put(C* values, std::int64_t offset, std::int64_t stride, std::int64_t n, C* old) const {
    void* const to = advance(o_.out.data, o_.out.dtype, offset);
    if constexpr (std::is_floating_point_v<C>) {
      if (o_.beta != 0) {
        const C* const before = load_row<C>(to, o_.out.dtype, stride, n, old);
        for (std::int64_t i = 0; i < n; ++i) values[i] += static_cast<C>(o_.beta) * before[i];
      }
    }
    store_row<C>(values, to, o_.out.dtype, stride, n);
  }

  // ---- Line by line ----

  template <bool kStore>
  void line(const std::int64_t* at, std::int64_t begin, std::int64_t end, const Ahead* ahead,
            State* total) const {
    alignas(64) C loaded[2][kRow];
    alignas(64) C turned[2][kRow];
    alignas(64) C results[kRow];
    alignas(64) std::int64_t positions[kRow];
    State outer = S::kPositions && kStore ? ahead->state : S::identity();
    for (std::int64_t j = begin; j < end; j += kRow) {
      const std::int64_t n = std::min(kRow, end - j);
      const std::int64_t first = o_.reverse ? plan_.length - j - n : j;
      const auto operand = [&](const ConstView& x, int view, int k) {
        const std::int64_t step = plan_.step[view];
        const C* row = load_row<C>(from(x, at[view] + first * step), x.dtype, step, n, loaded[k]);
        if (!o_.reverse) return row;
        std::reverse_copy(row, row + n, turned[k]);
        return static_cast<const C*>(turned[k]);
      };
      const C* const a = operand(o_.a, kA, 0);
      const C* const b = &o_.b == &o_.a ? a : operand(o_.b, kB, 1);
      const std::int64_t out_step = plan_.step[kOut], out_at = at[kOut] + first * out_step;
      C* values = results;
      if (kStore && o_.beta == 0)
        values = row_target<C>(advance(o_.out.data, o_.out.dtype, out_at), o_.out.dtype, out_step,
                               results);
      if constexpr (S::kPositions) {
        const std::int64_t step = plan_.step[kPosition];
        std::int64_t* const to =
            kStore ? o_.positions->as<std::int64_t>() + at[kPosition] + j * step : nullptr;
        std::int64_t* const found = row_target<std::int64_t>(to, i64, step, positions);
        extrema<kStore>(a, n, j - begin, begin, kStore ? ahead->position[0] : 0, outer, values,
                        found);
        if (kStore) store_row<std::int64_t>(found, to, i64, step, n);
      } else {
        piece<kStore>(a, b, n, outer, kStore ? ahead->state : S::identity(), values);
      }
      if constexpr (kStore) {
        if (o_.reverse) std::reverse(values, values + n);
        put(values, out_at, out_step, n, loaded[0]);
      }
    }
    *total = outer;
  }

  /// Scans extrema of n <= kRow elements. `first` is the place of the first in the chunk, which
  /// begins at `begin`. `sofar` is the extremum before them; `before` is its position if it
  /// precedes the chunk. A register without a new extremum costs one comparison.
  template <bool kStore>
  static void extrema(const C* a, std::int64_t n, std::int64_t first, std::int64_t begin,
                      std::int64_t before, State& sofar, C* values, std::int64_t* positions) {
    const auto absolute = [&](C place) {
      return place < 0 ? before : begin + static_cast<std::int64_t>(place);
    };
    for (std::int64_t k = 0; k < n; k += kWidth) {
      const V x = L::load(a + k, n - k);
      const std::int64_t lanes = std::min(kWidth, n - k);
      State s = sofar;
      const bool moves = L::any(S::F::wins(x, sofar.value));
      if (moves) {
        s = S::join(sofar,
                    scan_lanes<S, C>({x, V(static_cast<double>(first + k)) + L::counting()}));
        sofar = s.map([](V v) { return L::last(v); });
      }
      if constexpr (!kStore) continue;
      L::store(s.value, values + k, n - k);
      if (moves) {
        alignas(64) C places[kWidth];
        L::store(s.position, places, kWidth);
        for (std::int64_t i = 0; i < lanes; ++i) positions[k + i] = absolute(places[i]);
      } else {
        std::fill_n(positions + k, lanes, absolute(L::lane(sofar.position, 0)));
      }
    }
  }

  /// Computes the results of n <= kRow elements.
  template <bool kStore>
  static void piece(const C* a, const C* b, std::int64_t n, State& outer, const State& ahead,
                    C* values) {
    for (std::int64_t i = 0; i < n; i += kBlock) {
      State inner = S::identity();
      const std::int64_t stop = std::min(n, i + kBlock);
      for (std::int64_t k = i; k < stop; k += kWidth) {
        State s = S::lift(L::load(a + k, n - k), L::load(b + k, n - k), V(0));
        s = S::join(inner, scan_lanes<S, C>(s));
        if constexpr (kStore) {
          const State all = S::join(ahead, S::join(outer, s));
          L::store(S::value(all), values + k, n - k);
        }
        inner = s.map([](V x) { return L::last(x); });
      }
      outer = S::join(outer, inner);
    }
  }

  // ---- Short lines, several in a register ----

  /// True if all lines of a view are one run of memory, as those of a row-major tensor.
  bool dense() const {
    for (int v = 0; v < kScanViews; ++v)
      if (plan_.step[v] != 1 || walk_.inner_stride(v) != plan_.length) return false;
    return true;
  }

  /// Scans dense lines of `all` <= kRow elements together. A line of floats fits in a register;
  /// integers are joined one by one. All are joined in the order of line().
  void short_lines(const std::int64_t* at, std::int64_t all) const {
    alignas(64) C loaded[2][kRow];
    alignas(64) C turned[2][kRow];
    alignas(64) C results[kRow + kWidth];
    alignas(64) C places[kRow + kWidth];
    const auto operand = [&](const ConstView& x, int view, int k) {
      const C* const run = load_row<C>(from(x, at[view]), x.dtype, 1, all, loaded[k]);
      if (!o_.reverse) return run;
      std::reverse_copy(run, run + all, turned[k]);
      return static_cast<const C*>(turned[k]);
    };
    const C* const a = operand(o_.a, kA, 0);
    const C* const b = &o_.b == &o_.a ? a : operand(o_.b, kB, 1);
    const std::int64_t n = plan_.length, together = std::max<std::int64_t>(1, kWidth / n * n);
    for (std::int64_t i = 0; i < kWidth; ++i) places[i] = static_cast<C>(i % n);
    const V place = L::load(places, kWidth);
    State s = S::identity();
    for (std::int64_t i = 0; i < all; i += together) {
      const State x = S::lift(L::load(a + i, all - i), L::load(b + i, all - i),
                              kWidth == 1 ? V(static_cast<double>(i % n)) : place);
      if (kWidth > 1 || i % n == 0) s = S::identity();
      s = S::join(s, scan_lanes<S, C>(x, &place));
      L::store(S::value(s), results + i, kWidth);
      if constexpr (S::kPositions) L::store(s.position, places + i, kWidth);
    }
    if (o_.reverse) std::reverse(results, results + all);
    put(results, at[kOut], 1, all, loaded[0]);
    if constexpr (S::kPositions)
      store_row<C>(places, o_.positions->as<std::int64_t>() + at[kPosition], i64, 1, all);
  }

  // ---- Lines side by side ----

  void columns(const std::int64_t* at, std::int64_t width, std::int64_t begin, std::int64_t end,
               const Ahead* ahead, State* total, bool store) const {
    alignas(64) C loaded[2][kTile + kWidth] = {};
    alignas(64) C results[kTile + kWidth];
    alignas(64) C places[kTile + kWidth];
    alignas(64) std::int64_t positions[kTile];
    State inner[kTile / kWidth], outer[kTile / kWidth];
    const std::int64_t states = math::ceil_div(width, kWidth);
    std::fill_n(outer, states, S::identity());
    for (std::int64_t j = begin; j < end; ++j) {
      if ((j - begin) % kColumnBlock == 0) std::fill_n(inner, states, S::identity());
      const std::int64_t place = o_.reverse ? plan_.length - 1 - j : j;
      const auto operand = [&](const ConstView& x, int view, int k) {
        return load_row<C>(from(x, at[view] + place * plan_.step[view]), x.dtype,
                           plan_.column[view], width, loaded[k]);
      };
      const C* const a = operand(o_.a, kA, 0);
      const C* const b = &o_.b == &o_.a ? a : operand(o_.b, kB, 1);
      const V position(static_cast<double>(j - begin));
      for (std::int64_t s = 0; s < states; ++s) {
        const std::int64_t k = s * kWidth;
        inner[s] = S::join(inner[s],
                           S::lift(L::load(a + k, width - k), L::load(b + k, width - k), position));
        if (!store) continue;
        const State all = S::join(ahead[s].state, S::join(outer[s], inner[s]));
        L::store(S::value(all), results + k, kWidth);
        if constexpr (S::kPositions) L::store(all.position, places + k, kWidth);
      }
      if (store) {
        put(results, at[kOut] + place * plan_.step[kOut], plan_.column[kOut], width, loaded[0]);
        if constexpr (S::kPositions) {
          for (std::int64_t k = 0; k < width; ++k)
            positions[k] = places[k] < 0 ? ahead[k / kWidth].position[k % kWidth]
                                         : begin + static_cast<std::int64_t>(places[k]);
          store_row<std::int64_t>(
              positions,
              o_.positions->as<std::int64_t>() + at[kPosition] + j * plan_.step[kPosition], i64,
              plan_.column[kPosition], width);
        }
      }
      if ((j - begin) % kColumnBlock == kColumnBlock - 1 || j + 1 == end)
        for (std::int64_t s = 0; s < states; ++s) outer[s] = S::join(outer[s], inner[s]);
    }
    std::copy_n(outer, states, total);
  }

  const Operands& o_;
  ScanPlan plan_;
  Walk walk_;
};

template <template <class> class Scan, bool kIntegers>
void scan_as(const Operands& o, int axis, DType compute) {
  switch (compute) {
    case DType::f32:
      return Scanner<ValueScan<float, Scan>, float>(o, axis).run();
    case DType::f64:
      return Scanner<ValueScan<double, Scan>, double>(o, axis).run();
    default:
      if constexpr (kIntegers) Scanner<ValueScan<std::int64_t, Scan>, std::int64_t>(o, axis).run();
  }
}

template <template <class> class Fold>
void extremum_as(const Operands& o, int axis, DType compute) {
  switch (compute) {
    case DType::f32:
      return Scanner<ExtremumScan<float, Fold>, float>(o, axis).run();
    case DType::f64:
      return Scanner<ExtremumScan<double, Fold>, double>(o, axis).run();
    default:
      Scanner<ExtremumScan<std::int64_t, Fold>, std::int64_t>(o, axis).run();
  }
}

}  // namespace

void scan(ScanOp op, const ConstView& x, const View& out, int axis, bool reverse, float beta,
          Stream) {
  if (out.numel() == 0) return;
  const Operands o{x, x, out, nullptr, reverse, beta};
  const DType compute = compute_dtype(x.dtype);
  switch (op) {
#define FIRN_SCAN(name, Scan, integers) \
  case ScanOp::name:                    \
    return scan_as<math::Scan, integers>(o, axis, compute);
    FIRN_SCANS(FIRN_SCAN)
#undef FIRN_SCAN
  }
}

void scan_extremum(bool largest, const ConstView& x, const View& values, const View& positions,
                   int axis, Stream) {
  if (values.numel() == 0) return;
  const Operands o{x, x, values, &positions, false, 0};
  const DType compute = compute_dtype(x.dtype);
  largest ? extremum_as<math::MaxFold>(o, axis, compute)
          : extremum_as<math::MinFold>(o, axis, compute);
}

void scan_linear(const ConstView& a, const ConstView& b, const View& out, int axis, Stream) {
  if (out.numel() == 0) return;
  scan_as<math::LinearScan, false>({a, b, out, nullptr, true, 0}, axis, compute_dtype(a.dtype));
}

}  // namespace firn::kernels::cpu::FIRN_ISA
