// Reads at positions held in a tensor, on CUDA devices. take_rows is gather along axis 0 with an
// index that is repeated over the columns. The gradients are in scatter.cu.
#include "kernels/index.h"

#include <limits>

#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/elementwise/fill_pattern.cuh"
#include "kernels/cuda/index/index.cuh"

namespace firn::kernels::cuda {
namespace {

/// Returns the value that a bad index reads.
Pattern missing(DType dtype) {
  return Pattern(is_floating(dtype) ? std::numeric_limits<double>::quiet_NaN() : 0, dtype);
}

/// out[i] = x[...]. The strides in `axes` are those of out, the index, and x with 0 along the axis.
template <class T>
__global__ void gather_elements(const T* x, Index index, T* out, std::int64_t n,
                                StridedAxes<3> axes, std::int64_t axis_stride, T none) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += step) {
    std::int64_t at[3];
    axes.offsets(i, at);
    const auto place = at[1];
    const std::int64_t value = index.value(place);
    if (index.allows(value)) {
      out[at[0]] = x[at[2] + value * axis_stride];
    } else {
      out[at[0]] = none;
      index.raise(place, value);
    }
  }
}

/// Writes rows of `classes` elements.
template <class T>
__global__ void one_hot_elements(Index index, std::int64_t index_stride, T* out, std::int64_t n,
                                 StridedAxes<3> axes, T one, T none) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += step) {
    std::int64_t at[3];  // in out, row, column
    axes.offsets(i, at);
    const std::int64_t place = at[1] * index_stride;
    const std::int64_t value = index.value(place);
    if (index.allows(value)) {
      out[at[0]] = value == at[2] ? one : T(0);
    } else {
      out[at[0]] = none;
      if (at[2] == 0) index.raise(place, value);
    }
  }
}

}  // namespace

void gather(const char* op, const ConstView& x, const ConstView& index, const View& out, int axis,
            Stream stream) {
  if (out.numel() == 0) return;
  Strides off_axis = x.strides;
  off_axis[axis] = 0;
  AxisTable<3> axes(out.shape, {&out.strides, &index.strides, &off_axis});
  const std::size_t bytes = size_of(x.dtype);
  const void* const data[] = {out.data, nullptr, x.data};
  int width = axes.together(bytes, data);
  while (x.strides[axis] % width != 0) width /= 2;
  axes.group(width, data);
  const std::int64_t n = axes.numel();
  const Index positions(op, index, x.shape[axis]);
  with_bits(bytes * static_cast<std::size_t>(width), [&]<class T>(T) {
    gpu::launch(op, gather_elements<T>, grid_for(n), dim3(kBlock), 0, stream, x.as<T>(), positions,
                out.as<T>(), n, axes.on_device(), x.strides[axis] / width,
                missing(x.dtype).as<T>());
  });
}

void take_rows(const char* op, const ConstView& table, const ConstView& index, const View& out,
               Stream stream) {
  gather(op, table, over_columns(index, out.shape[1]), out, 0, stream);
}

void one_hot(const char* op, const ConstView& index, const View& out, Stream stream) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  const Strides rows{1, 0}, columns{0, 1};
  const AxisTable<3> axes(out.shape, {&out.strides, &rows, &columns});
  const Index positions(op, index, out.shape[1]);
  const std::int64_t stride = index.rank() == 0 ? 1 : index.strides[0];
  with_bits(size_of(out.dtype), [&]<class T>(T) {
    if constexpr (sizeof(T) <= 8) {
      gpu::launch(op, one_hot_elements<T>, grid_for(n), dim3(kBlock), 0, stream, positions, stride,
                  out.as<T>(), n, axes.on_device(), Pattern(1, out.dtype).as<T>(),
                  missing(out.dtype).as<T>());
    }
  });
}

}  // namespace firn::kernels::cuda
