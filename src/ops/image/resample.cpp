// Resizing of images. It copies elements, or interpolates four in f32, so autocast keeps their
// dtype.
#include "kernels/resample.h"

#include "firn/ops/pool.h"
#include "ops/gradient/again.h"
#include "ops/image/images.h"

namespace firn {

using namespace ops;

Tensor upsample2d(const Tensor& x, Size2 out, Upsampling how) {
  const AsImages images = as_images("upsample2d", x, true);
  require_image_size("upsample2d", out.h, out.w);
  const bool bilinear = how == Upsampling::bilinear;
  const ConstView in = images.view(x);
  Tensor y = images.empty(in, out.h, out.w);
  kernels::resample(in, bilinear, images.mutable_view(y), stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("upsample2d", {{"bilinear", bilinear}});
  const auto backward = [images, bilinear](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::resample_backward(images.view(b.grad()), bilinear, images.mutable_view(dx), beta,
                               b.stream());
  };
  const auto again = [images, bilinear, out, how](GraphBackward& b) {
    const auto gathered = [&](const Tensor& dy) {
      const Tensor dx = empty(b.input_shape(0), dy.dtype(), dy.device());
      kernels::resample_backward(images.view(dy), bilinear, images.mutable_view(dx), 0,
                                 stream_of(dx));
      return dx;
    };
    b.add(0, transposed_map("upsample2d_gradient", b.grad(), gathered,
                            [out, how](const Tensor& v) { return upsample2d(v, out, how); }));
  };
  return record("upsample2d", y, {&x}, {}, with_again(backward, again));
}

}  // namespace firn
