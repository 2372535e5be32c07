// Writes at positions held in a tensor, on CUDA devices. The positions are sorted by their targets
// (lists.cuh), and one thread combines the elements of one target, in the order of the index.
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/index/lists.cuh"
#include "kernels/index.h"
#include "kernels/math/combine.h"

namespace firn::kernels::cuda {
namespace {

/// A thread takes the last entry of its key, and one column.
template <class T, class K>
__global__ void put_last(const T* src, T* out, Lists lists, StridedAxes<2> columns,
                         std::int64_t width, const K* keys, const K* positions) {
  const std::int64_t n = lists.lines * lists.length;
  for (std::int64_t i = global_thread(); i < n * width; i += grid_threads()) {
    const std::int64_t e = math::floor_div(i, width);
    const auto key = static_cast<std::int64_t>(keys[e]);
    if (key == lists.lines * lists.places) continue;
    if (e + 1 < n && keys[e + 1] == keys[e]) continue;
    const std::int64_t line = math::floor_div(key, lists.places);
    std::int64_t of_line[3], of_column[2];
    lists.axes.offsets(line, of_line);
    columns.offsets(i - e * width, of_column);
    const std::int64_t j = static_cast<std::int64_t>(positions[e]) - line * lists.length;
    out[of_line[0] + of_column[0] + (key - line * lists.places) * lists.grad_step] =
        src[of_line[2] + of_column[1] + j * lists.dy_step];
  }
}

template <class T>
__device__ T met(T a, T b, Meeting meeting) {
  switch (meeting) {
    case Meeting::sum:
      return math::wrapping_sum(a, b);
    case Meeting::prod:
      return math::wrapping_product(a, b);
    case Meeting::max:
      return math::larger_or_nan(a, b);
    default:
      return math::smaller_or_nan(a, b);
  }
}

/// A thread takes the first entry of its key and those that follow it, and one column.
template <class T, class K>
__global__ void put_combined(const T* src, T* out, Lists lists, StridedAxes<2> columns,
                             std::int64_t width, const K* keys, const K* positions,
                             Meeting meeting) {
  const std::int64_t n = lists.lines * lists.length;
  for (std::int64_t i = global_thread(); i < n * width; i += grid_threads()) {
    std::int64_t e = math::floor_div(i, width);
    const K own = keys[e];
    const auto key = static_cast<std::int64_t>(own);
    if (key == lists.lines * lists.places || (e > 0 && keys[e - 1] == own)) continue;
    const std::int64_t line = math::floor_div(key, lists.places);
    std::int64_t of_line[3], of_column[2];
    lists.axes.offsets(line, of_line);
    columns.offsets(i - e * width, of_column);
    T* const place =
        out + of_line[0] + of_column[0] + (key - line * lists.places) * lists.grad_step;
    const T* const from = src + of_line[2] + of_column[1];
    T value = *place;
    for (; e < n && keys[e] == own; ++e) {
      const std::int64_t j = static_cast<std::int64_t>(positions[e]) - line * lists.length;
      value = met(value, from[j * lists.dy_step], meeting);
    }
    *place = value;
  }
}

template <class Fn>
void with_element(DType dtype, Fn&& fn) {
  switch (dtype) {
    case f64:
      return fn(double());
    case i32:
      return fn(std::int32_t());
    case i64:
      return fn(std::int64_t());
    case u8:
      return fn(std::uint8_t());
    default:
      return fn(float());
  }
}

template <class K>
void put_sorted(const char* op, const ConstView& src, const ConstView& index, const View& out,
                int axis, Meeting meeting, Stream stream) {
  const Split split(src, index, out, axis);
  const AxisTable<3> lines(split.lines, {&split.grad_lines, &split.index_lines, &split.dy_lines});
  const AxisTable<2> columns(split.columns, {&split.grad_columns, &split.dy_columns});
  const Lists lists(lines, src, index, out, axis);
  const SortedLists<K> entries(op, Index(op, index, out.shape[axis]), lists, stream);
  const std::int64_t width = columns.numel(), n = lists.entries() * width;
  if (meeting == Meeting::last) {
    with_bits(size_of(out.dtype), [&]<class T>(T) {
      if constexpr (sizeof(T) <= 8) {
        gpu::launch(op, put_last<T, K>, grid_for(n), dim3(kBlock), 0, stream, src.as<T>(),
                    out.as<T>(), lists, columns.on_device(), width, entries.keys(),
                    entries.positions());
      }
    });
    return;
  }
  with_element(out.dtype, [&]<class T>(T) {
    gpu::launch(op, put_combined<T, K>, grid_for(n), dim3(kBlock), 0, stream, src.as<T>(),
                out.as<T>(), lists, columns.on_device(), width, entries.keys(), entries.positions(),
                meeting);
  });
}

}  // namespace

void put(const char* op, const ConstView& src, const ConstView& index, const View& out, int axis,
         Meeting meeting, Stream stream) {
  if (src.numel() == 0) return;
  if (fits_32_bits(src, index, out, axis)) {
    put_sorted<std::uint32_t>(op, src, index, out, axis, meeting, stream);
  } else {
    put_sorted<std::uint64_t>(op, src, index, out, axis, meeting, stream);
  }
}

}  // namespace firn::kernels::cuda
