// Resizing of images on CUDA devices. One thread computes each element that is written, in the
// order of that tensor's memory.
#include "kernels/resample.h"

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/image/image.cuh"
#include "kernels/math/image/window.h"

namespace firn::kernels::cuda {
namespace {

using math::Range;
using math::ResizeAxis;

struct Resize {
  ResizeAxis h, w;
  Resize(const Shape& in, const Shape& out) : h{in[2], out[2]}, w{in[3], out[3]} {}
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
    const auto load = [&](std::int64_t h, std::int64_t w) {
      return widen(x[plane.at(at.image[0], h, w)]);
    };
    const C value = math::bilinear(load(down.low, across.low), load(down.low, across.high),
                                   load(down.high, across.low), load(down.high, across.high),
                                   resize.h.weight<C>(down), resize.w.weight<C>(across));
    narrow(value, y[at.offset]);
  }
}

/// dx = beta*dx + the gradients that the outputs that read it give.
template <class T>
static __global__ void resample_backward_kernel(const T* dy, Plane plane, Resize resize,
                                                bool bilinear, ImageAxes<1> axes,
                                                std::int64_t count, void* dx, DType dx_dtype,
                                                float beta) {
  using C = ComputeOf<T>;
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    const auto at = axes.place(o);
    const Range rows = bilinear ? resize.h.outputs(at.h) : resize.h.nearest_outputs(at.h);
    const Range columns = bilinear ? resize.w.outputs(at.w) : resize.w.nearest_outputs(at.w);
    C sum = 0;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const C down = bilinear ? resize.h.weight_of<C>(i, at.h) : C(1);
      for (std::int64_t j = columns.begin; j < columns.end; ++j) {
        const C across = bilinear ? resize.w.weight_of<C>(j, at.w) : C(1);
        sum += down * across * widen(dy[plane.at(at.image[0], i, j)]);
      }
    }
    if (beta != 0) sum += static_cast<C>(beta) * load_element<C>(dx, dx_dtype, at.offset);
    store_element(sum, dx, dx_dtype, at.offset);
  }
}

}  // namespace

void resample(const ConstView& x, bool bilinear, const View& y, Stream stream) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(y, {&x.strides});
  with_floating(x.dtype, [&]<class T>(T) {
    gpu::launch("resample", bilinear ? bilinear_kernel<T> : nearest_kernel<T>, grid_for(count),
                dim3(kBlock), 0, stream, x.as<T>(), Plane(x.strides), Resize(x.shape, y.shape),
                axes, count, y.as<T>());
  });
}

void resample_backward(const ConstView& dy, bool bilinear, const View& dx, float beta,
                       Stream stream) {
  const std::int64_t count = dx.numel();
  if (count == 0) return;
  const ImageAxes<1> axes(dx, {&dy.strides});
  with_floating(dy.dtype, [&]<class T>(T) {
    gpu::launch("resample_backward", resample_backward_kernel<T>, grid_for(count), dim3(kBlock), 0,
                stream, dy.as<T>(), Plane(dy.strides), Resize(dx.shape, dy.shape), bilinear, axes,
                count, dx.data, dx.dtype, beta);
  });
}

}  // namespace firn::kernels::cuda
