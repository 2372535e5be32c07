// Pooling. Under autocast it keeps its operand's dtype; sums of 16-bit types run in f32.
#include "firn/ops/pool.h"

#include "kernels/elementwise.h"
#include "kernels/pool.h"
#include "kernels/reduce.h"
#include "ops/gradient/again.h"
#include "ops/image/images.h"
#include "ops/image/pool_checks.h"

namespace firn {

using namespace ops;
using kernels::PoolWindows;

namespace {

struct Plan {
  PoolWindows windows;
  std::int64_t h, w;  // sizes of the result
};

Plan plan(const char* op, const ConstView& x, Size2 window, const Pool2dOptions& options) {
  Size2 stride = options.stride;
  const std::int64_t h = windows_along(op, "height", x.shape[2], window.h, stride.h,
                                       options.padding.h, options.dilation.h, options.ceil_mode);
  const std::int64_t w = windows_along(op, "width", x.shape[3], window.w, stride.w,
                                       options.padding.w, options.dilation.w, options.ceil_mode);
  PoolWindows windows;
  windows.size = {window.h, window.w};
  windows.stride = {stride.h, stride.w};
  windows.padding = {options.padding.h, options.padding.w};
  windows.dilation = {options.dilation.h, options.dilation.w};
  windows.count_padding = options.count_padding;
  return {windows, h, w};
}

Plan adaptive_plan(const char* op, Size2 out) {
  require_image_size(op, out.h, out.w);
  PoolWindows windows;
  windows.adaptive = true;
  return {windows, out.h, out.w};
}

void give_attributes(const char* op, AsImages images, const Plan& p) {
  if (!autograd::wants_attributes()) [[likely]]
    return;
  const PoolWindows& w = p.windows;
  autograd::attributes(op, {{"batched", images.batched},
                            {"has_height", images.has_height},
                            {"size", w.size},
                            {"stride", w.stride},
                            {"padding", w.padding},
                            {"dilation", w.dilation},
                            {"count_padding", w.count_padding},
                            {"adaptive", w.adaptive}});
}

Tensor max_pool(const char* op, const Tensor& x, AsImages images, const Plan& p) {
  const ConstView in = images.view(x);
  require_positions(op, in.shape[2], in.shape[3]);
  Tensor y = images.empty(op, in, p.h, p.w);
  Tensor index;  // positions of the largest values; with y's strides
  if (autograd::detail::needs_recording({&x}))
    index = empty(Shape{y.numel()}, i32, x.device()).as_strided(y.shape(), y.strides());
  kernels::max_pool(in, p.windows, images.mutable_view(y),
                    index.defined() ? images.mutable_view(index) : View{}, stream_of(x));
  give_attributes(op, images, p);
  const auto backward = [images, windows = p.windows](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::max_pool_backward(images.view(b.grad()), images.view(b.saved(0)), windows,
                               images.mutable_view(dx), beta, b.stream());
  };
  const auto again = [images, windows = p.windows](GraphBackward& b) {
    const Tensor& at = b.saved(0);
    const auto spread = [&](const Tensor& dy) {
      const Tensor dx = empty(b.input_shape(0), dy.dtype(), dy.device());
      kernels::max_pool_backward(images.view(dy), images.view(at), windows, images.mutable_view(dx),
                                 0, stream_of(dx));
      return dx;
    };
    b.add(0, transposed_map("max_pool_gradient", b.grad(), spread, [images, at](const Tensor& v) {
            const std::int64_t axis = images.has_height ? -2 : -1;
            return reshape(gather(flatten(v, axis), -1, flatten(cast(at, i64), axis)), at.shape());
          }));
  };
  return record(op, y, {&x}, {Saved::other(index)}, with_again(backward, again));
}

Tensor avg_pool(const char* op, const Tensor& x, AsImages images, const Plan& p) {
  const ConstView in = images.view(x);
  Tensor y = images.empty(op, in, p.h, p.w);
  kernels::avg_pool(in, p.windows, images.mutable_view(y), stream_of(x));
  give_attributes(op, images, p);
  const auto backward = [images, windows = p.windows](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::avg_pool_backward(images.view(b.grad()), windows, images.mutable_view(dx), beta,
                               b.stream());
  };
  const auto again = [op, images, p](GraphBackward& b) {
    const auto spread = [&](const Tensor& dy) {
      const Tensor dx = empty(b.input_shape(0), dy.dtype(), dy.device());
      kernels::avg_pool_backward(images.view(dy), p.windows, images.mutable_view(dx), 0,
                                 stream_of(dx));
      return dx;
    };
    b.add(0,
          transposed_map("avg_pool_gradient", b.grad(), spread,
                         [op, images, p](const Tensor& v) { return avg_pool(op, v, images, p); }));
  };
  return record(op, y, {&x}, {}, with_again(backward, again));
}

void require_no_dilation(const char* op, Size2 dilation) {
  FIRN_CHECK(dilation == Size2(1), op, kNoGaps, "dilation is {} x {}, not 1", dilation.h,
             dilation.w);
}

/// Returns the options of pooling along the width only.
Pool2dOptions along_width(Pool2dOptions options) {
  options.stride.h = 1;
  options.padding.h = 0;
  options.dilation.h = 1;
  return options;
}

/// The mean of each image; `shape` has 1 x 1 positions or leaves these axes out. It is computed as
/// a reduction, not as a window.
Tensor mean_of_images(const char* op, const Tensor& x, const Shape& shape) {
  const int h = x.rank() - 2;
  Shape kept = x.shape();
  kept[h] = kept[h + 1] = 1;
  const double scale = 1.0 / static_cast<double>(x.shape()[h] * x.shape()[h + 1]);
  // Row-major: 1 x 1 images are row-major in both memory formats.
  Tensor y = empty(shape, x.dtype(), x.device());
  kernels::reduce(kernels::ReduceOp::sum, x.view(),
                  y.as_strided(kept, contiguous_strides(kept)).mutable_view(), scale, 0,
                  stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"whole", true}});
  const auto backward = [h, scale](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    Strides strides = b.grad().strides();  // 0 along the axes of the image
    while (strides.size() > h) strides.pop_back();
    strides.push_back(0);
    strides.push_back(0);
    kernels::axpby(scale, b.grad().as_strided(dx.shape(), strides).view(), beta, dx.mutable_view(),
                   b.stream());
  };
  return record(op, y, {&x}, {}, with_again(backward, [kept, scale](GraphBackward& b) {
                  b.add(0, expand(mul(reshape(b.grad(), kept), scale), b.input_shape(0)));
                }));
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2 window, const Pool2dOptions& options) {
  const AsImages images = as_images("max_pool2d", x, true);
  return max_pool("max_pool2d", x, images, plan("max_pool2d", images.view(x), window, options));
}

Tensor avg_pool2d(const Tensor& x, Size2 window, const Pool2dOptions& options) {
  const AsImages images = as_images("avg_pool2d", x, true);
  require_no_dilation("avg_pool2d", options.dilation);
  return avg_pool("avg_pool2d", x, images, plan("avg_pool2d", images.view(x), window, options));
}

Tensor adaptive_max_pool2d(const Tensor& x, Size2 out) {
  const AsImages images = as_images("adaptive_max_pool2d", x, true);
  return max_pool("adaptive_max_pool2d", x, images, adaptive_plan("adaptive_max_pool2d", out));
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2 out) {
  const AsImages images = as_images("adaptive_avg_pool2d", x, true);
  const Plan p = adaptive_plan("adaptive_avg_pool2d", out);
  if (out == Size2(1)) {
    Shape shape = x.shape();
    shape[x.rank() - 2] = shape[x.rank() - 1] = 1;
    return mean_of_images("adaptive_avg_pool2d", x, shape);
  }
  return avg_pool("adaptive_avg_pool2d", x, images, p);
}

Tensor global_avg_pool2d(const Tensor& x) {
  as_images("global_avg_pool2d", x, true);
  Shape shape = x.shape();
  shape.pop_back();
  shape.pop_back();
  return mean_of_images("global_avg_pool2d", x, shape);
}

Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t out) {
  const AsImages rows = as_images("adaptive_max_pool1d", x, false);
  return max_pool("adaptive_max_pool1d", x, rows, adaptive_plan("adaptive_max_pool1d", {1, out}));
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t out) {
  const AsImages rows = as_images("adaptive_avg_pool1d", x, false);
  return avg_pool("adaptive_avg_pool1d", x, rows, adaptive_plan("adaptive_avg_pool1d", {1, out}));
}

Tensor max_pool1d(const Tensor& x, std::int64_t window, const Pool2dOptions& options) {
  const AsImages rows = as_images("max_pool1d", x, false);
  return max_pool("max_pool1d", x, rows,
                  plan("max_pool1d", rows.view(x), {1, window}, along_width(options)));
}

Tensor avg_pool1d(const Tensor& x, std::int64_t window, const Pool2dOptions& options) {
  const AsImages rows = as_images("avg_pool1d", x, false);
  require_no_dilation("avg_pool1d", options.dilation);
  return avg_pool("avg_pool1d", x, rows,
                  plan("avg_pool1d", rows.view(x), {1, window}, along_width(options)));
}

}  // namespace firn
