// Positions held in a tensor, sorted by their targets, for kernels that visit the elements of one
// target in their order (sort.cuh). dy has the index's shape, and grad is the tensor of the
// targets.
#pragma once

#include <algorithm>
#include <bit>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/index/index.cuh"
#include "kernels/cuda/index/sort.cuh"

namespace firn::kernels::cuda {

/// The axes other than the indexed one: those along which the index has a stride make lines, the
/// others columns.
struct Split {
  Shape lines, columns;
  Strides grad_lines, index_lines, dy_lines, grad_columns, dy_columns;

  Split(const ConstView& dy, const ConstView& index, const View& grad, int axis) {
    for (int i = 0; i < dy.rank(); ++i) {
      if (i == axis) continue;
      const bool line = index.strides[i] != 0;
      (line ? lines : columns).push_back(dy.shape[i]);
      (line ? grad_lines : grad_columns).push_back(grad.strides[i]);
      (line ? dy_lines : dy_columns).push_back(dy.strides[i]);
      if (line) index_lines.push_back(index.strides[i]);
    }
  }
};

/// The positions that are sorted: `lines` lists of `length` indices each into `places` places.
/// Entry e is element e % length of list e / length.
struct Lists {
  std::int64_t lines, length, places;
  StridedAxes<3> axes;  ///< offsets of a line in grad, the index and dy
  std::int64_t grad_step, index_step, dy_step;

  Lists(const AxisTable<3>& of_lines, const ConstView& dy, const ConstView& index, const View& grad,
        int axis)
      : lines(of_lines.numel()),
        length(dy.shape[axis]),
        places(grad.shape[axis]),
        axes(of_lines.on_device()),
        grad_step(grad.strides[axis]),
        index_step(index.strides[axis]),
        dy_step(dy.strides[axis]) {}

  std::int64_t entries() const { return lines * length; }
  /// The key of entries whose index is out of range, greater than the key of every place.
  std::int64_t last_key() const { return lines * places; }
};

/// Makes the key of an entry: its place among those of all lines.
template <class K>
static __global__ void make_list_keys(Index index, Lists lists, SortBuffers<K> buffers) {
  const std::int64_t n = lists.lines * lists.length, step = grid_threads();
  if (global_thread() == 0) *buffers.ticket = 0;
  for (std::int64_t e = global_thread(); e < n; e += step) {
    const std::int64_t line = e / lists.length, j = e - line * lists.length;
    std::int64_t at[3];
    lists.axes.offsets(line, at);
    const std::int64_t place = at[1] + j * lists.index_step;
    const std::int64_t value = index.value(place);
    std::int64_t key = lists.lines * lists.places;
    if (index.allows(value)) {
      key = line * lists.places + value;
    } else {
      index.raise(place, value);
    }
    buffers.keys[0][e] = static_cast<K>(key);
    buffers.positions[0][e] = static_cast<K>(e);
  }
}

/// The entries of all lists in the order of their keys; entries of one key keep their order.
template <class K>
class SortedLists {
 public:
  SortedLists(const char* op, const Index& index, const Lists& lists, Stream stream)
      : workspace_(static_cast<std::size_t>(4 * lists.entries() + counts_of(lists) + 1) * sizeof(K),
                   stream) {
    const std::int64_t n = lists.entries(), counts = counts_of(lists);
    K* const memory = static_cast<K*>(workspace_.data());
    buffers_ = {{memory, memory + n},
                {memory + 2 * n, memory + 3 * n},
                memory + 4 * n,
                reinterpret_cast<unsigned*>(memory + 4 * n + counts)};
    gpu::launch(op, make_list_keys<K>, grid_for(n), dim3(kBlock), 0, stream, index, lists,
                buffers_);
    const int bits = std::bit_width(static_cast<std::uint64_t>(lists.last_key()));
    sorted_ = sort_pairs(op, buffers_, n, bits, stream);
  }
  const K* keys() const { return buffers_.keys[sorted_]; }
  const K* positions() const { return buffers_.positions[sorted_]; }

 private:
  static std::int64_t counts_of(const Lists& lists) {
    return sort_blocks(lists.entries()) * kDigits;
  }

  runtime::Workspace workspace_;
  SortBuffers<K> buffers_;
  int sorted_ = 0;
};

/// True if 32 bits hold the keys and positions of the sort, and the key of bad indices.
inline bool fits_32_bits(const ConstView& dy, const ConstView& index, const View& grad, int axis) {
  std::int64_t entries = dy.shape[axis], places = grad.shape[axis];
  for (int i = 0; i < dy.rank(); ++i) {
    if (i == axis || index.strides[i] == 0) continue;
    entries *= dy.shape[i];
    places *= dy.shape[i];
  }
  return std::max(entries, places) <= std::int64_t{0xffffffff};
}

}  // namespace firn::kernels::cuda
