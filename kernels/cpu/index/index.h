// Code that gather and scatter share on the CPU: the check of indices, and the axes of the loops.
// take_rows and add_rows are gather and gather_backward along axis 0, with an index that is
// repeated over the columns.
//
// Determinism: the terms of one sum differ only in their position along the axis. So work is split
// along other axes or by sum, and terms are added in the order of the axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "firn/shape.h"
#include "firn/view.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/math/macros.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

inline constexpr std::int64_t kIndexChunk = 16384;  ///< elements of a chunk of small pieces
/// Up to this many duplicates are summed in the compute type. Longer sums run in f64, because their
/// rounding errors would accumulate.
inline constexpr std::int64_t kFewTerms = 64;

/// Throws Error in the name of `op` if an index is outside [0, bound). An axis with stride 0 is
/// checked once. Does nothing in a dry run.
void check_index(const char* op, const ConstView& index, std::int64_t bound);

inline std::int64_t index_at(const ConstView& index, std::int64_t offset) {
  return index.dtype == i32 ? index.as<std::int32_t>()[offset] : index.as<std::int64_t>()[offset];
}

/// Strides of one axis (or offsets) in the indexed tensor, in the index, and in the tensor of the
/// index's shape.
struct IndexSteps {
  std::int64_t size = 1;
  std::int64_t table = 0;
  std::int64_t index = 0;
  std::int64_t dense = 0;
};

/// Calls fn(table offset, dense offset) for the elements of a line, in order. The place in the
/// table moves by `along` for each step of an index.
template <class I, class Fn>
void each_element(const I* index, const IndexSteps& line, std::int64_t along, Fn&& fn) {
  constexpr std::integral_constant<std::int64_t, 0> kNone;
  constexpr std::integral_constant<std::int64_t, 1> kOne;
  if (line.index == 0) {  // one index for all elements
    const std::int64_t begin = static_cast<std::int64_t>(*index) * along;
    if (line.table == 1 && line.dense == 1) {
      for (std::int64_t k = 0; k < line.size; ++k) fn(begin + k, k);
    } else {
      for (std::int64_t k = 0; k < line.size; ++k) fn(begin + k * line.table, k * line.dense);
    }
    return;
  }
  const auto run = [&](auto table, auto step, auto dense, auto factor) {
    for (std::int64_t k = 0; k < line.size; ++k)
      fn(k * table + static_cast<std::int64_t>(index[k * step]) * factor, k * dense);
  };
  if (line.index != 1 || line.dense != 1) {
    run(line.table, line.index, line.dense, along);
  } else if (line.table == 0 && along == 1) {
    run(kNone, kOne, kOne, kOne);
  } else {
    run(line.table, kOne, kOne, along);
  }
}

/// Calls fn(address) with the type of the indices.
template <class Fn>
decltype(auto) with_indices(const ConstView& index, Fn&& fn) {
  return index.dtype == i32 ? fn(index.as<std::int32_t>()) : fn(index.as<std::int64_t>());
}

/// The axes of a gather: the one that is indexed, an inner one (or none), and the rest merged.
struct IndexGeometry {
  IndexSteps axis;
  IndexSteps inner;
  IndexSteps outer[kMaxRank];
  int outer_count = 0;
  std::int64_t lines = 1;  ///< product of the outer sizes

  IndexGeometry(const ConstView& table, const ConstView& index, const ConstView& dense, int along) {
    for (int i = 0; i < index.rank(); ++i) {
      const IndexSteps s{index.shape[i], table.strides[i], index.strides[i], dense.strides[i]};
      if (i == along) {
        axis = s;
        continue;
      }
      if (s.size == 1) continue;
      IndexSteps* previous = outer_count > 0 ? &outer[outer_count - 1] : nullptr;
      // Axes on different sides of the indexed one never merge: the table's stride jumps over it.
      if (previous && previous->table == s.table * s.size && previous->index == s.index * s.size &&
          previous->dense == s.dense * s.size) {
        const std::int64_t size = previous->size;
        *previous = s;
        previous->size *= size;
      } else {
        outer[outer_count++] = s;
      }
    }
    // The inner loop runs along another axis if elements are closer there than along the indexed
    // one: those of the three tensors together, or of one if an index is for all of a slice.
    const auto apart = [this](const IndexSteps& s) {
      const bool slices = outer[outer_count - 1].index == 0;
      return std::abs(s.dense) + (slices ? 0 : std::abs(s.index) + s.table);
    };
    if (outer_count > 0 && apart(outer[outer_count - 1]) <= apart(axis))
      inner = outer[--outer_count];
    for (int i = 0; i < outer_count; ++i) lines *= outer[i].size;
  }

  IndexSteps line(std::int64_t l) const {
    IndexSteps at;
    for (int i = outer_count - 1; i >= 0; --i) {
      const std::int64_t k = l % outer[i].size;
      l /= outer[i].size;
      at.table += k * outer[i].table;
      at.index += k * outer[i].index;
      at.dense += k * outer[i].dense;
    }
    return at;
  }
};

/// Returns a 1-D index as [m, d], repeated over the columns.
inline ConstView over_columns(const ConstView& index, std::int64_t d) {
  ConstView v = index;
  v.shape.push_back(d);
  v.strides.push_back(0);
  return v;
}

/// Calls fn(element of the table, element of `dense`) for all positions. If kOrdered, one thread
/// meets the positions along the axis, in their order.
template <bool kOrdered, class Table, class Dense, class Fn>
void each_pair(Table* table, Dense* dense, const ConstView& index, const IndexGeometry& g,
               const Fn& fn) {
  const IndexSteps &axis = g.axis, &inner = g.inner;
  const bool along = inner.size == 1;  // a line follows the axis, or each of its positions has one
  const std::int64_t columns = std::min(kOrdered ? kIndexChunk / 32 : kIndexChunk, inner.size);
  const std::int64_t most = kOrdered ? axis.size : std::max<std::int64_t>(1, kIndexChunk / columns);
  const std::int64_t rows = std::min(most, axis.size);
  const std::int64_t tiles = math::ceil_div(inner.size, columns);
  const std::int64_t parts = math::ceil_div(axis.size, rows), pieces = g.lines * parts * tiles;
  const std::int64_t together = std::max<std::int64_t>(1, kIndexChunk / (rows * columns));
  with_indices(index, [&](const auto* list) {
    parallel_for(
        math::ceil_div(pieces, together), pieces * rows * columns, [&](std::int64_t chunk) {
          const std::int64_t end = std::min(pieces, (chunk + 1) * together);
          for (std::int64_t p = chunk * together; p < end; ++p) {
            const IndexSteps at = g.line(p / tiles / parts);
            const std::int64_t column = p % tiles * columns, row = p / tiles % parts * rows;
            const std::int64_t n = std::min(columns, inner.size - column);
            const std::int64_t m = std::min(rows, axis.size - row);
            const IndexSteps line = along ? IndexSteps{m, 0, axis.index, axis.dense}
                                          : IndexSteps{n, inner.table, inner.index, inner.dense};
            Table* const here = table + at.table + column * inner.table;
            for (std::int64_t j = row; j < (along ? row + 1 : row + m); ++j) {
              Dense* const own = dense + at.dense + column * inner.dense + j * axis.dense;
              each_element(list + at.index + column * inner.index + j * axis.index, line,
                           axis.table,
                           [&](std::int64_t t, std::int64_t d) { fn(here[t], own[d]); });
            }
          }
        });
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
