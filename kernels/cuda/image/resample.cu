// Resizing of images on CUDA devices. One thread computes each element that is written, in the
// order of that tensor's memory.
#include "kernels/resample.h"

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/image/image.cuh"
#include "kernels/math/image/resize.h"

namespace firn::kernels::cuda {
namespace {

using math::Range;
using math::ResizeAxis;

struct Resize {
  ResizeAxis h, w;
  Resize(Resampling how, const Shape& in, const Shape& out)
      : h(how.axis(in, out, 2)), w(how.axis(in, out, 3)) {}
  bool nearest() const { return h.taps() == 1 && w.taps() == 1; }
  bool bilinear() const { return h.taps() == 2 && w.taps() == 2; }
};

template <class T>
static __global__ void nearest_kernel(const T* x, Plane plane, Resize resize, ImageAxes<1> axes,
                                      std::int64_t count, T* y) {
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    y[at.offset] = x[plane.at(at.image[0], resize.h.nearest(at.h), resize.w.nearest(at.w))];
  }
}

template <class T>
static __global__ void bilinear_kernel(const T* x, Plane plane, Resize resize, ImageAxes<1> axes,
                                       std::int64_t count, T* y) {
  using C = ComputeOf<T>;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const auto down = resize.h.between(at.h), across = resize.w.between(at.w);
    const auto load = [&](int r, int c) {
      return widen(x[plane.at(at.image[0], resize.h.source(down, r), resize.w.source(across, c))]);
    };
    const C value = math::bilinear(load(0, 0), load(0, 1), load(1, 0), load(1, 1),
                                   resize.h.template weight<C>(down, 1),
                                   resize.w.template weight<C>(across, 1));
    narrow(value, y[at.offset]);
  }
}

/// Sums any number of sources along each of the two axes.
template <class T>
static __global__ void weighted_kernel(const T* x, Plane plane, Resize resize, ImageAxes<1> axes,
                                       std::int64_t count, T* y) {
  using C = ComputeOf<T>;
  const int rows = resize.h.taps(), columns = resize.w.taps();
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const auto down = resize.h.between(at.h), across = resize.w.between(at.w);
    C sum = 0;
    for (int r = 0; r < rows; ++r) {
      const std::int64_t h = rows == 1 ? resize.h.nearest(at.h) : resize.h.source(down, r);
      C row = 0;
      for (int c = 0; c < columns; ++c) {
        const std::int64_t w = columns == 1 ? resize.w.nearest(at.w) : resize.w.source(across, c);
        const C weight = columns == 1 ? C(1) : resize.w.template weight<C>(across, c);
        row += weight * widen(x[plane.at(at.image[0], h, w)]);
      }
      sum += (rows == 1 ? C(1) : resize.h.template weight<C>(down, r)) * row;
    }
    narrow(sum, y[at.offset]);
  }
}

/// dx = beta*dx + the gradients from the outputs that read it.
template <class T>
static __global__ void resample_backward_kernel(const T* dy, Plane plane, Resize resize,
                                                ImageAxes<1> axes, std::int64_t count, void* dx,
                                                DType dx_dtype, float beta) {
  using C = ComputeOf<T>;
  const bool one_row = resize.h.taps() == 1, one_column = resize.w.taps() == 1;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const Range rows = one_row ? resize.h.nearest_outputs(at.h) : resize.h.outputs(at.h);
    const Range columns = one_column ? resize.w.nearest_outputs(at.w) : resize.w.outputs(at.w);
    C sum = 0;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const C down = one_row ? C(1) : resize.h.template weight_of<C>(i, at.h);
      for (std::int64_t j = columns.begin; j < columns.end; ++j) {
        const C across = one_column ? C(1) : resize.w.template weight_of<C>(j, at.w);
        sum += down * across * widen(dy[plane.at(at.image[0], i, j)]);
      }
    }
    if (beta != 0) sum += static_cast<C>(beta) * load_element<C>(dx, dx_dtype, at.offset);
    store_element(sum, dx, dx_dtype, at.offset);
  }
}

}  // namespace

void resample(const ConstView& x, Resampling how, const View& y, Stream stream) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(y, {&x.strides});
  const Resize resize(how, x.shape, y.shape);
  with_floating(x.dtype, [&]<class T>(T) {
    auto* const kernel = resize.nearest()    ? nearest_kernel<T>
                         : resize.bilinear() ? bilinear_kernel<T>
                                             : weighted_kernel<T>;
    gpu::launch("resample", kernel, grid_for(count), dim3(kBlock), 0, stream, x.as<T>(),
                Plane(x.strides), resize, axes, count, y.as<T>());
  });
}

void resample_backward(const ConstView& dy, Resampling how, const View& dx, float beta,
                       Stream stream) {
  const std::int64_t count = dx.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(dx, {&dy.strides});
  with_floating(dy.dtype, [&]<class T>(T) {
    gpu::launch("resample_backward", resample_backward_kernel<T>, grid_for(count), dim3(kBlock), 0,
                stream, dy.as<T>(), Plane(dy.strides), Resize(how, dx.shape, dy.shape), axes, count,
                dx.data, dx.dtype, beta);
  });
}

}  // namespace firn::kernels::cuda
