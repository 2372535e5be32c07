// Resizing of images. It copies elements, or interpolates four in f32, so autocast keeps their
// dtype.
#include "kernels/resample.h"

#include "firn/ops/pool.h"
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
  return record("upsample2d", y, {&x}, {}, [images, bilinear](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::resample_backward(images.view(b.grad()), bilinear, images.mutable_view(dx), beta,
                               b.stream());
  });
}

}  // namespace firn
