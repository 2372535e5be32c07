// Pooling on CUDA devices. One thread computes each element that is written, in the order of that
// tensor's memory. It reads the element's window, or the windows that hold it.
#include "kernels/pool.h"

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/image/image.cuh"
#include "kernels/math/fold.h"

namespace firn::kernels::cuda {
namespace {

using math::Range;

/// The windows along both axes.
struct Windows {
  math::WindowAxis h, w;
  bool count_padding;

  Windows(const PoolWindows& windows, const Shape& in, const Shape& out)
      : h(window_axis(windows, 0, in[2], out[2])),
        w(window_axis(windows, 1, in[3], out[3])),
        count_padding(windows.count_padding) {}
  __device__ std::int64_t divisor(std::int64_t i, std::int64_t j) const {
    return h.divisor(i, count_padding) * w.divisor(j, count_padding);
  }
};

template <class T>
static __global__ void max_pool_kernel(const T* x, Plane plane, Windows windows, ImageAxes<1> axes,
                                       std::int64_t count, T* y, std::int32_t* index) {
  using C = ComputeOf<T>;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const Range down = windows.h.positions(at.h), across = windows.w.positions(at.w);
    C best = math::MaxFold<C>::identity();
    std::int64_t position = -1;
    for (std::int64_t h = down.begin; h < down.end; h += windows.h.dilation) {
      for (std::int64_t w = across.begin; w < across.end; w += windows.w.dilation) {
        const C value = widen(x[plane.at(at.image[0], h, w)]);
        if (position < 0 || math::beats(value, best)) {
          best = value;
          position = h * windows.w.in + w;
        }
      }
    }
    narrow(best, y[at.offset]);
    if (index != nullptr) index[at.offset] = static_cast<std::int32_t>(position);
  }
}

template <class T>
static __global__ void avg_pool_kernel(const T* x, Plane plane, Windows windows, ImageAxes<1> axes,
                                       std::int64_t count, T* y) {
  using C = ComputeOf<T>;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const Range down = windows.h.positions(at.h), across = windows.w.positions(at.w);
    C sum = 0;
    for (std::int64_t h = down.begin; h < down.end; ++h) {
      for (std::int64_t w = across.begin; w < across.end; ++w)
        sum += widen(x[plane.at(at.image[0], h, w)]);
    }
    narrow(sum / static_cast<C>(windows.divisor(at.h, at.w)), y[at.offset]);
  }
}

/// The gradient that window (i, j) gives to the element at a place.
template <class T>
struct MaxGradient {
  const T* dy;
  const std::int32_t* index;
  Plane dy_plane, index_plane;

  __device__ ComputeOf<T> operator()(const ImageAxes<2>::Place& at, const Windows& windows,
                                     std::int64_t i, std::int64_t j) const {
    const std::int64_t position = at.h * windows.w.in + at.w;
    return index[index_plane.at(at.image[1], i, j)] == position
               ? widen(dy[dy_plane.at(at.image[0], i, j)])
               : ComputeOf<T>(0);
  }
};
template <class T>
struct MeanGradient {
  const T* dy;
  Plane dy_plane;

  __device__ ComputeOf<T> operator()(const ImageAxes<2>::Place& at, const Windows& windows,
                                     std::int64_t i, std::int64_t j) const {
    return widen(dy[dy_plane.at(at.image[0], i, j)]) /
           static_cast<ComputeOf<T>>(windows.divisor(i, j));
  }
};

/// dx = beta*dx + the gradients that its windows give.
template <class T, class Gradient>
static __global__ void gather_kernel(Gradient gradient, Windows windows, ImageAxes<2> axes,
                                     std::int64_t count, void* dx, DType dx_dtype, float beta) {
  using C = ComputeOf<T>;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const Range down = windows.h.windows(at.h), across = windows.w.windows(at.w);
    C sum = 0;
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      if (!windows.h.holds(i, at.h)) continue;
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        if (windows.w.holds(j, at.w)) sum += gradient(at, windows, i, j);
      }
    }
    if (beta != 0) sum += static_cast<C>(beta) * load_element<C>(dx, dx_dtype, at.offset);
    store_element(sum, dx, dx_dtype, at.offset);
  }
}

template <class T, class Gradient>
void gather(const char* op, const Gradient& gradient, const Windows& windows,
            const ImageAxes<2>& axes, const View& dx, float beta, Stream stream) {
  const std::int64_t count = dx.numel();
  gpu::launch(op, gather_kernel<T, Gradient>, grid_for(count), dim3(kBlock), 0, stream, gradient,
              windows, axes, count, dx.data, dx.dtype, beta);
}

}  // namespace

void max_pool(const ConstView& x, const PoolWindows& windows, const View& y, const View& index,
              Stream stream) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(y, {&x.strides});
  with_floating(x.dtype, [&]<class T>(T) {
    gpu::launch("max_pool", max_pool_kernel<T>, grid_for(count), dim3(kBlock), 0, stream, x.as<T>(),
                Plane(x.strides), Windows(windows, x.shape, y.shape), axes, count, y.as<T>(),
                static_cast<std::int32_t*>(index.data));
  });
}

void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream stream) {
  if (dx.numel() == 0) return;
  const ImageAxes<2> axes(dx, {&dy.strides, &index.strides});
  with_floating(dy.dtype, [&]<class T>(T) {
    const MaxGradient<T> gradient{dy.as<T>(), index.as<std::int32_t>(), Plane(dy.strides),
                                  Plane(index.strides)};
    gather<T>("max_pool_backward", gradient, Windows(windows, dx.shape, dy.shape), axes, dx, beta,
              stream);
  });
}

void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream stream) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(y, {&x.strides});
  with_floating(x.dtype, [&]<class T>(T) {
    gpu::launch("avg_pool", avg_pool_kernel<T>, grid_for(count), dim3(kBlock), 0, stream, x.as<T>(),
                Plane(x.strides), Windows(windows, x.shape, y.shape), axes, count, y.as<T>());
  });
}

void avg_pool_backward(const ConstView& dy, const PoolWindows& windows, const View& dx, float beta,
                       Stream stream) {
  if (dx.numel() == 0) return;
  const ImageAxes<2> axes(dx, {&dy.strides, &dy.strides});
  with_floating(dy.dtype, [&]<class T>(T) {
    gather<T>("avg_pool_backward", MeanGradient<T>{dy.as<T>(), Plane(dy.strides)},
              Windows(windows, dx.shape, dy.shape), axes, dx, beta, stream);
  });
}

}  // namespace firn::kernels::cuda
