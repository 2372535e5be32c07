// Borders that repeat a tensor's own elements, and their gradients.
//
// The axis along which a row grows, the axis of the rows, and the planes of rows differ: a chunk is
// some rows of a plane. The axes behind a row's belong to its elements.
//
// Determinism: the terms of an element are added in the order of their places, and in the type in
// which gather_backward adds them by one index of all places.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/copy.h"
#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/index/index.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

struct PaddedAxis {
  std::int64_t size = 1, places = 1, before = 0;
  int step = 0;

  /// Calls fn(place, element) for the border before the axis, or for the one behind it.
  template <class Fn>
  void each_border(bool behind, Fn&& fn) const {
    const std::int64_t edge = behind ? size - 1 : 0;
    for (std::int64_t p = behind ? before + size : 0; p < (behind ? places : before); ++p) {
      const std::int64_t i = p - before;
      fn(p, step == 0 ? edge : step < 0 ? 2 * edge - i : behind ? i - size : i + size);
    }
  }
  /// Calls fn(place) for the places that show an element, in ascending order.
  template <class Fn>
  void each_place(std::int64_t element, Fn&& fn) const {
    const auto border = [&](std::int64_t p, std::int64_t i) {
      if (i == element) fn(p);
    };
    each_border(false, border);
    fn(before + element);
    each_border(true, border);
  }
};

struct PaddedPlanes {
  PaddedAxis row, rows, outer[kMaxRank];
  int outer_count = 0;
  std::int64_t inner = 1, own = 1, padded = 1;  ///< lengths of an element and of rows
  std::int64_t planes = 1, height = 1;          ///< number of planes; rows of a chunk

  PaddedPlanes(const Shape& shape, const Shape& to, const Dims& before, int step) {
    int last = shape.size() - 1;
    for (; last > 0 && shape[last] == to[last]; --last) inner *= shape[last];
    row = {shape[last], to[last], before[last], step};
    own = inner * row.size;
    padded = inner * row.places;
    for (int i = 0; i < last; ++i) {
      if (rows.size == rows.places && shape[i] == to[i]) {
        rows.size = rows.places *= shape[i];
      } else {
        if (rows.places > 1) outer[outer_count++] = rows;
        planes *= rows.size;
        rows = {shape[i], to[i], before[i], step};
      }
    }
    height = std::clamp<std::int64_t>(kIndexChunk / padded, 1, rows.size);
  }

  /// Calls fn(plane, first row, number of rows) for chunks that threads share.
  template <class Fn>
  void each_chunk(std::int64_t bytes, Fn&& fn) const {
    const std::int64_t parts = math::ceil_div(rows.size, height);
    parallel_for_with_scratch(bytes, planes * parts, planes * rows.size * padded,
                              [&](std::int64_t chunk) {
                                const std::int64_t first = chunk % parts * height;
                                fn(chunk / parts, first, std::min(height, rows.size - first));
                              });
  }
  /// Calls fn(number) for the padded planes that show a plane, in ascending order.
  template <class Fn>
  void each_padded(std::int64_t plane, Fn&& fn) const {
    std::int64_t at[kMaxRank];
    for (int i = outer_count - 1; i >= 0; --i) {
      at[i] = plane % outer[i].size;
      plane /= outer[i].size;
    }
    each_from(0, at, 0, fn);
  }
  template <class Fn>
  void each_from(int axis, const std::int64_t* at, std::int64_t number, Fn& fn) const {
    if (axis == outer_count) return fn(number);
    outer[axis].each_place(at[axis], [&](std::int64_t place) {
      each_from(axis + 1, at, number * outer[axis].places + place, fn);
    });
  }
};

template <class A>
void add_run(const A* __restrict terms, A* __restrict sum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += terms[i];
}

/// dx = sums of dy, each computed in A and rounded once.
template <class A>
void sum_places(const ConstView& dy, const View& dx, const PaddedPlanes& g) {
  const bool direct = dx.dtype == dtype_of<A>;
  const std::int64_t buffered = direct ? 0 : g.height * (g.own + g.padded);
  g.each_chunk(
      slot_bytes_of<A>(buffered), [&](std::int64_t plane, std::int64_t first, std::int64_t count) {
        std::optional<Workspace> wide;
        if (!direct) wide.emplace(Shape{buffered}, dtype_of<A>);
        A* const buffer = direct ? nullptr : wide->view().template as<A>();
        A* const widened = direct ? nullptr : buffer + g.height * g.own;
        void* const to = advance(dx.data, dx.dtype, (plane * g.rows.size + first) * g.own);
        A* const sums = row_target(to, dx.dtype, 1, buffer);
        std::fill_n(sums, count * g.own, A(0));
        g.each_padded(plane, [&](std::int64_t number) {
          const auto add_rows_at = [&](std::int64_t place, std::int64_t n, std::int64_t element) {
            const std::int64_t at = (number * g.rows.places + place) * g.padded;
            const A* terms =
                load_row<A>(advance(dy.data, dy.dtype, at), dy.dtype, 1, n * g.padded, widened);
            for (A* sum = sums + (element - first) * g.own; n > 0;
                 --n, terms += g.padded, sum += g.own) {
              const auto border = [&](std::int64_t p, std::int64_t i) {
                add_run(terms + p * g.inner, sum + i * g.inner, g.inner);
              };
              g.row.each_border(false, border);
              add_run(terms + g.row.before * g.inner, sum, g.own);
              g.row.each_border(true, border);
            }
          };
          const auto border = [&](std::int64_t place, std::int64_t element) {
            if (element >= first && element < first + count) add_rows_at(place, 1, element);
          };
          g.rows.each_border(false, border);
          add_rows_at(g.rows.before + first, count, first);
          g.rows.each_border(true, border);
        });
        store_row<A>(sums, to, dx.dtype, 1, count * g.own);
      });
}

}  // namespace

void pad(const ConstView& x, const View& y, const Dims& before, int step) {
  if (y.numel() == 0) return;
  const PaddedPlanes g(x.shape, y.shape, before, step);
  visit_size(x.dtype, [&]<class T>() {
    g.each_chunk(0, [&](std::int64_t plane, std::int64_t first, std::int64_t count) {
      const T* const from = x.as<T>() + (plane * g.rows.size + first) * g.own;
      g.each_padded(plane, [&](std::int64_t number) {
        T* const to = y.as<T>() + number * g.rows.places * g.padded;
        T* const shown = to + (g.rows.before + first) * g.padded;
        copy_block(from, {g.own, 1}, shown + g.row.before * g.inner, {g.padded, 1}, count, g.own);
        for (const bool behind : {false, true}) {
          g.row.each_border(behind, [&](std::int64_t p, std::int64_t i) {
            if (g.inner == 1) {
              copy_block(from + i, {0, g.own}, shown + p, {0, g.padded}, 1, count);
            } else {
              copy_block(from + i * g.inner, {g.own, 1}, shown + p * g.inner, {g.padded, 1}, count,
                         g.inner);
            }
          });
        }
        for (const bool behind : {false, true}) {  // rows that have their borders
          g.rows.each_border(behind, [&](std::int64_t p, std::int64_t i) {
            if (i >= first && i < first + count)
              std::copy_n(to + (g.rows.before + i) * g.padded, g.padded, to + p * g.padded);
          });
        }
      });
    });
  });
}

void pad_backward(const ConstView& dy, const View& dx, const Dims& before, int step) {
  if (dx.numel() == 0) return;
  const PaddedPlanes g(dx.shape, dy.shape, before, step);
  std::int64_t list = 1;  // length of that index: places from the first axis that grows to the last
  for (int i = 0; i < dx.rank(); ++i)
    if (list > 1 || dx.shape[i] != dy.shape[i]) list *= dy.shape[i];
  if (dx.dtype == f64 || (g.inner == 1 && list > kFewTerms)) return sum_places<double>(dy, dx, g);
  sum_places<float>(dy, dx, g);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
