// Sorting lines of a tensor on CUDA devices. There are two ways:
//
//   rank   Each element counts the elements of its line that come before it, and writes its
//          position at that place. One launch; the work is the square of a line's length.
//   digits Many lines are sorted at once, by value, then by line, with the sort of sort.cuh. Both
//          sorts are stable. 2 launches for each byte of an element and of the number of lines, and
//          3 more. The work is proportional to the number of elements. So that the workspace stays
//          small, 2^24 elements are sorted at a time, if a line is not longer.
#include "kernels/sort.h"

#include <bit>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/index/sort.cuh"
#include "kernels/math/order_key.h"

namespace firn::kernels::cuda {
namespace {

/// The lines that are sorted. Element e is element e % length of line first + e / length.
struct SortedLines {
  std::int64_t first, length, kept;
  StridedAxes<2> axes;  ///< from a line to out and x
  std::int64_t out_step, x_step;
};

template <class U>
__global__ void place_by_rank(const U* x, math::OrderKey<U> key, SortedLines lines, std::int64_t n,
                              std::int64_t* out) {
  for (std::int64_t e = global_thread(); e < n; e += grid_threads()) {
    const std::int64_t line = math::floor_div(e, lines.length), j = e - line * lines.length;
    std::int64_t at[2];
    lines.axes.offsets(lines.first + line, at);
    const U own = key(x[at[1] + j * lines.x_step]);
    std::int64_t rank = 0;
    for (std::int64_t i = 0; i < lines.length; ++i) {
      const U other = key(x[at[1] + i * lines.x_step]);
      rank += other < own || (other == own && i < j) ? 1 : 0;
    }
    if (rank < lines.kept) out[at[0] + rank * lines.out_step] = j;
  }
}

template <class U, class K>
__global__ void make_keys(const U* x, math::OrderKey<U> key, SortedLines lines, std::int64_t n,
                          SortBuffers<K> buffers) {
  if (global_thread() == 0) *buffers.ticket = 0;
  for (std::int64_t e = global_thread(); e < n; e += grid_threads()) {
    const std::int64_t line = math::floor_div(e, lines.length), j = e - line * lines.length;
    std::int64_t at[2];
    lines.axes.offsets(lines.first + line, at);
    buffers.keys[0][e] = key(x[at[1] + j * lines.x_step]);
    buffers.positions[0][e] = static_cast<K>(e);
  }
}

/// Sets the key of an element to its line.
template <class K>
__global__ void take_lines(const K* positions, std::int64_t length, std::int64_t n, K* keys) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads())
    keys[i] = static_cast<K>(math::floor_div(static_cast<std::int64_t>(positions[i]), length));
}

template <class K>
__global__ void write_positions(const K* positions, SortedLines lines, std::int64_t n,
                                std::int64_t* out) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    const std::int64_t line = math::floor_div(i, lines.length), rank = i - line * lines.length;
    if (rank >= lines.kept) continue;
    std::int64_t at[2];
    lines.axes.offsets(lines.first + line, at);
    out[at[0] + rank * lines.out_step] =
        static_cast<std::int64_t>(positions[i]) - line * lines.length;
  }
}

template <class U, class K>
void sort_by_digits(const U* x, const math::OrderKey<U>& key, const SortedLines& lines,
                    std::int64_t n, std::int64_t* out, Stream stream) {
  const char* const op = "sort";
  const std::int64_t counts = sort_blocks(n) * kDigits;
  const runtime::Workspace workspace(static_cast<std::size_t>(4 * n + counts + 1) * sizeof(K),
                                     stream);
  K* const memory = workspace.as<K>();
  SortBuffers<K> buffers{{memory, memory + n},
                         {memory + 2 * n, memory + 3 * n},
                         memory + 4 * n,
                         reinterpret_cast<unsigned*>(memory + 4 * n + counts)};
  const dim3 grid = grid_for(n), block(kBlock);
  gpu::launch(op, make_keys<U, K>, grid, block, 0, stream, x, key, lines, n, buffers);
  int sorted = sort_pairs(op, buffers, n, 8 * static_cast<int>(sizeof(U)), stream);
  const std::int64_t last_line = n / lines.length - 1;
  if (last_line > 0) {
    if (sorted == 1) {
      std::swap(buffers.keys[0], buffers.keys[1]);
      std::swap(buffers.positions[0], buffers.positions[1]);
    }
    gpu::launch(op, take_lines<K>, grid, block, 0, stream, buffers.positions[0], lines.length, n,
                buffers.keys[0]);
    sorted =
        sort_pairs(op, buffers, n, std::bit_width(static_cast<std::uint64_t>(last_line)), stream);
  }
  gpu::launch(op, write_positions<K>, grid, block, 0, stream, buffers.positions[sorted], lines, n,
              out);
}

}  // namespace

void sort_positions(const ConstView& x, const View& out, int axis, bool descending, Stream stream) {
  if (out.numel() == 0) return;
  Shape shape = x.shape;
  Strides out_lines = out.strides, x_lines = x.strides;
  shape[axis] = 1;
  out_lines[axis] = x_lines[axis] = 0;
  const AxisTable<2> axes(shape, {&out_lines, &x_lines});
  SortedLines lines{
      0, x.shape[axis], out.shape[axis], axes.on_device(), out.strides[axis], x.strides[axis]};
  const std::int64_t n = x.numel();
  constexpr std::int64_t kShortLine = 512;
  const std::int64_t most = max_blocks().load(std::memory_order_relaxed) * (kBlockKeys / 2);
  with_bits(size_of(x.dtype), [&]<class U>(U) {
    if constexpr (sizeof(U) <= 8) {
      const math::OrderKey<U> key(x.dtype, descending);
      auto* const to = out.as<std::int64_t>();
      if (lines.length <= kShortLine) {
        gpu::launch("sort", place_by_rank<U>, grid_for(n), dim3(kBlock), 0, stream, x.as<U>(), key,
                    lines, n, to);
        return;
      }
      // The integer type of the sort holds keys and numbers of elements.
      const std::int64_t together = std::max<std::int64_t>(1, most / lines.length);
      const std::int64_t count = n / lines.length;
      for (; lines.first < count; lines.first += together) {
        const std::int64_t part = std::min(together, count - lines.first) * lines.length;
        if (sizeof(U) == 8 || part > std::int64_t{0xffffffff}) {
          sort_by_digits<U, std::uint64_t>(x.as<U>(), key, lines, part, to, stream);
        } else if constexpr (sizeof(U) < 8) {
          sort_by_digits<U, std::uint32_t>(x.as<U>(), key, lines, part, to, stream);
        }
      }
    }
  });
}

}  // namespace firn::kernels::cuda
