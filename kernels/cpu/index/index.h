// Code that gather and scatter share on the CPU: the check of indices, and the axes of the loops.
// take_rows and add_rows are gather and gather_backward along axis 0, with an index that is
// repeated over the columns.
//
// Determinism: the terms of one sum differ only in their position along the axis. So work is split
// along other axes or by sum, and terms are added in the order of the axis.
#pragma once

#include <cstdint>

#include "firn/shape.h"
#include "firn/view.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

inline constexpr std::int64_t kIndexChunk = 16384;  ///< elements of a chunk of small pieces

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
    // one.
    if (outer_count > 0 && outer[outer_count - 1].dense <= axis.dense) inner = outer[--outer_count];
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

}  // namespace firn::kernels::cpu::FIRN_ISA
