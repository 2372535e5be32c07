// Columns of an image batch for convolutions as GEMMs: gathered from channels-last images (im2col),
// and summed back into them (col2im). One thread sums an element of an image, so that no two
// threads add to one place and the order of each sum is fixed.
#include "kernels/cuda/conv/parts.h"
#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/math/unary.h"

namespace firn::kernels::cuda {
namespace {

/// Adds an axis of more than one position.
template <int V>
void push(StridedAxes<V>& axes, std::int64_t size, const std::int64_t (&strides)[V]) {
  if (size != 1) axes.push_back(size, strides);
}

// ---- Gathering ----

/// The layout of x for the gather, in units of the elements that threads move.
struct Image {
  std::int64_t h, w;
  std::int64_t before_h, before_w;
  std::int64_t corner;  ///< offset of the first image's element [0, 0] in the padded image
};

/// Writes element i of the columns. `axes` gives its offset in x as if x were padded, its row and
/// column in the padded image, and its offset in all columns. These columns begin at `first`.
template <class T>
static __global__ void gather_kernel(const T* x, T* columns, std::int64_t begin, std::int64_t count,
                                     std::int64_t first, StridedAxes<4> axes, Image image) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < count; i += step) {
    std::int64_t at[4];
    axes.offsets(begin + i, at);
    const std::int64_t row = at[1] - image.before_h, column = at[2] - image.before_w;
    const bool inside = row >= 0 && row < image.h && column >= 0 && column < image.w;
    columns[at[3] - first] = inside ? x[at[0] - image.corner] : T{};
  }
}

/// Returns the number of elements of `bytes` bytes that threads move at once. It divides a group's
/// channels, and every address is a multiple of their size.
int together(std::size_t bytes, std::int64_t channels, const void* a, const void* b) {
  for (int width = static_cast<int>(16 / bytes); width > 1; width /= 2) {
    const std::size_t size = bytes * static_cast<std::size_t>(width);
    if (channels % width == 0 && reinterpret_cast<std::uintptr_t>(a) % size == 0 &&
        reinterpret_cast<std::uintptr_t>(b) % size == 0) {
      return width;
    }
  }
  return 1;
}

// ---- Summing ----

/// The layout of the columns for sum_kernel, in units of the elements that threads move.
struct Taps {
  int r, s;
  int before_h, before_w;
  int dilation_h, dilation_w;
  int stride_h, stride_w;
  int p, q;
  Divisor by_stride_h, by_stride_w;
  std::int64_t row;  ///< distance of two rows of the columns
  std::int64_t tap;  ///< distance of two taps
};

/// A thread sums V adjacent channels of dx. `axes` gives their offset in dx, and that of their
/// group's first tap in the columns of their image. It also gives their row and column in the
/// image.
template <class T, int V>
static __global__ void sum_kernel(const ComputeOf<T>* columns, T* dx, std::int64_t count,
                                  StridedAxes<4> axes, Taps taps, ComputeOf<T> beta) {
  using C = ComputeOf<T>;
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < count; i += step) {
    std::int64_t at[4];
    axes.offsets(i, at);
    Lanes<C, V> sum{};
    int row = static_cast<int>(at[2]) + taps.before_h;
    for (int r = 0; r < taps.r && row >= 0; ++r, row -= taps.dilation_h) {
      const int p = static_cast<int>(taps.by_stride_h.divide(static_cast<std::uint32_t>(row)));
      if (p >= taps.p || p * taps.stride_h != row) continue;
      int column = static_cast<int>(at[3]) + taps.before_w;
      for (int s = 0; s < taps.s && column >= 0; ++s, column -= taps.dilation_w) {
        const int q = static_cast<int>(taps.by_stride_w.divide(static_cast<std::uint32_t>(column)));
        if (q >= taps.q || q * taps.stride_w != column) continue;
        const Lanes<C, V> part = lanes_at<Lanes<C, V>>(
            columns, at[1] + (static_cast<std::int64_t>(p) * taps.q + q) * taps.row +
                         (static_cast<std::int64_t>(r) * taps.s + s) * taps.tap);
        for (int j = 0; j < V; ++j) sum.lane[j] += part.lane[j];
      }
    }
    Lanes<T, V> out;
    if (beta != 0) {
      out = lanes_at<Lanes<T, V>>(dx, at[0]);
      for (int j = 0; j < V; ++j) sum.lane[j] += beta * widen(out.lane[j]);
    }
    for (int j = 0; j < V; ++j) narrow(sum.lane[j], out.lane[j]);
    lanes_at<Lanes<T, V>>(dx, at[0]) = out;
  }
}

// ---- The epilogue of a GEMM with groups ----

template <class T>
static __global__ void add_bias_kernel(const ComputeOf<T>* sum, const void* bias, DType bias_dtype,
                                       std::int64_t bias_stride, bool relu, T* y,
                                       std::int64_t count, std::int64_t k) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < count; i += step) {
    ComputeOf<T> v = sum[i];
    if (bias) v += load_element<ComputeOf<T>>(bias, bias_dtype, i % k * bias_stride);
    narrow(relu ? math::Relu::f(v, {}) : v, y[i]);
  }
}

}  // namespace

void gather_columns(const ConstView& x, const ConvSizes& sizes, const ConvGeometry& geometry,
                    std::int64_t begin, std::int64_t end, void* columns, Stream stream) {
  const std::size_t bytes = size_of(x.dtype);
  const int width = together(bytes, sizes.channels(), x.data, columns);
  const std::int64_t channels = sizes.channels() / width, line = sizes.c / width;
  const std::int64_t row = sizes.w * line, image = sizes.h * row;
  if (channels == 0 || end == begin) return;

  const std::int64_t to = sizes.column_stride(x.dtype) / width;
  const std::int64_t tap = channels, taps = sizes.r * sizes.s;
  StridedAxes<4> axes;
  push(axes, sizes.n, {image, 0, 0, sizes.positions() * to});
  push(axes, sizes.p, {geometry.stride[0] * row, geometry.stride[0], 0, sizes.q * to});
  push(axes, sizes.q, {geometry.stride[1] * line, 0, geometry.stride[1], to});
  push(axes, sizes.groups(), {channels, 0, 0, taps * tap});
  push(axes, sizes.r, {geometry.dilation[0] * row, geometry.dilation[0], 0, sizes.s * tap});
  push(axes, sizes.s, {geometry.dilation[1] * line, 0, geometry.dilation[1], tap});
  push(axes, channels, {1, 0, 0, 1});
  axes.finish();
  const std::int64_t unit = sizes.groups() * taps * channels;
  const std::int64_t count = (end - begin) * unit;
  const Image seen{sizes.h, sizes.w, geometry.before[0], geometry.before[1],
                   geometry.before[0] * row + geometry.before[1] * line};
  with_bits(bytes * static_cast<std::size_t>(width), [&]<class T>(T) {
    gpu::launch("im2col", gather_kernel<T>, grid_for(count), dim3(kBlock), 0, stream, x.as<T>(),
                static_cast<T*>(columns), begin * unit, count, begin * to, axes, seen);
  });
}

void sum_columns(const void* columns, const ConvSizes& sizes, const ConvGeometry& geometry,
                 const View& dx, float beta, Stream stream) {
  if (dx.numel() == 0) return;
  with_floating(dx.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const auto run = [&]<int V>(std::integral_constant<int, V>) {
      const std::int64_t channels = sizes.channels() / V;
      const std::int64_t tap = channels, group = sizes.r * sizes.s * tap;
      const std::int64_t row = sizes.column_stride(compute_dtype(dx.dtype)) / V;
      const auto stride = [&](int axis) { return axis == 1 ? 1 : dx.strides[axis] / V; };
      StridedAxes<4> axes;
      push(axes, sizes.n, {stride(0), sizes.positions() * row, 0, 0});
      push(axes, sizes.h, {stride(2), 0, 1, 0});
      push(axes, sizes.w, {stride(3), 0, 0, 1});
      const std::int64_t along = V == 1 ? dx.strides[1] : 1;
      push(axes, sizes.groups(), {channels * along, group, 0, 0});
      push(axes, channels, {along, 1, 0, 0});
      axes.finish();
      const auto narrow_to_int = [](std::int64_t v) { return static_cast<int>(v); };
      const Taps taps{narrow_to_int(sizes.r),
                      narrow_to_int(sizes.s),
                      narrow_to_int(geometry.before[0]),
                      narrow_to_int(geometry.before[1]),
                      narrow_to_int(geometry.dilation[0]),
                      narrow_to_int(geometry.dilation[1]),
                      narrow_to_int(geometry.stride[0]),
                      narrow_to_int(geometry.stride[1]),
                      narrow_to_int(sizes.p),
                      narrow_to_int(sizes.q),
                      Divisor(static_cast<std::uint32_t>(geometry.stride[0])),
                      Divisor(static_cast<std::uint32_t>(geometry.stride[1])),
                      row,
                      tap};
      const std::int64_t count = dx.numel() / V;
      gpu::launch("col2im", sum_kernel<T, V>, grid_for(count), dim3(kBlock), 0, stream,
                  static_cast<const C*>(columns), dx.as<T>(), count, axes, taps,
                  static_cast<C>(beta));
    };
    // Threads take 16 bytes of the columns at once if dx allows stores of as many elements.
    constexpr int kWide = 16 / static_cast<int>(sizeof(C));
    bool wide = sizes.channels() % kWide == 0 && (dx.strides[1] == 1 || sizes.c == 1) &&
                is_aligned(columns) &&
                reinterpret_cast<std::uintptr_t>(dx.data) % alignof(Lanes<T, kWide>) == 0;
    for (const int axis : {0, 2, 3}) {
      wide = wide && (dx.shape[axis] == 1 || dx.strides[axis] % kWide == 0);
    }
    if (wide) {
      run(std::integral_constant<int, kWide>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

void add_bias(const void* sum, const ConstView& bias, bool relu, const View& y, Stream stream) {
  if (y.numel() == 0) return;
  with_floating(y.dtype, [&]<class T>(T) {
    gpu::launch("convolution's bias", add_bias_kernel<T>, grid_for(y.numel()), dim3(kBlock), 0,
                stream, static_cast<const ComputeOf<T>*>(sum), bias.data, bias.dtype,
                bias.data ? bias.strides[0] : 0, relu, y.as<T>(), y.numel(), y.shape[1]);
  });
}

}  // namespace firn::kernels::cuda
