// Resizes images, rows and volumes. It copies elements, or interpolates in f32, so autocast keeps
// their dtype.
#include "kernels/resample.h"

#include "firn/ops/pool.h"
#include "ops/gradient/again.h"
#include "ops/image/images.h"
#include "ops/image/volumes.h"

namespace firn {

using namespace ops;
using kernels::Resampling;

namespace {

Resampling resampling(const char* op, Upsampling how, const UpsampleOptions& o) {
  FIRN_CHECK(!o.align_corners || how == Upsampling::linear || how == Upsampling::bicubic, op,
             "leave it out: a nearest source has no position between two", "align_corners with {}",
             to_string(how));
  using math::ResizeKind;
  switch (how) {
    case Upsampling::linear:
      return {ResizeKind::linear, o.align_corners};
    case Upsampling::bicubic:
      return {ResizeKind::cubic, o.align_corners};
    case Upsampling::nearest_exact:
      return {ResizeKind::nearest_exact, false};
    default:
      return {ResizeKind::nearest, false};
  }
}

void check_kind(const char* op, Upsampling how, bool images) {
  require_named(op, "Upsampling", how, Upsampling::nearest_exact);
  FIRN_CHECK(images || how != Upsampling::bicubic, op, "upsample2d() does this, or take linear",
             "bicubic is for images [n, c, h, w]");
}

Tensor resized(const char* op, const Tensor& x, AsImages images, Size2 out, Resampling how) {
  require_image_size(op, out.h, out.w);
  const ConstView in = images.view(x);
  Tensor y = images.empty(op, in, out.h, out.w);
  kernels::resample(in, how, images.mutable_view(y), stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(
        op, {{"kind", static_cast<std::int64_t>(how.kind)}, {"align_corners", how.align_corners}});
  const auto backward = [images, how](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::resample_backward(images.view(b.grad()), how, images.mutable_view(dx), beta,
                               b.stream());
  };
  const auto again = [op, images, how, out](GraphBackward& b) {
    const auto gathered = [&](const Tensor& dy) {
      const Tensor dx = empty(b.input_shape(0), dy.dtype(), dy.device());
      kernels::resample_backward(images.view(dy), how, images.mutable_view(dx), 0, stream_of(dx));
      return dx;
    };
    b.add(0, transposed_map("upsample_gradient", b.grad(), gathered,
                            [op, images, out, how](const Tensor& v) {
                              return resized(op, v, images, out, how);
                            }));
  };
  return record(op, y, {&x}, {}, with_again(backward, again));
}

}  // namespace

const char* to_string(Upsampling how) noexcept {
  switch (how) {
    case Upsampling::linear:
      return "linear";
    case Upsampling::bicubic:
      return "bicubic";
    case Upsampling::nearest_exact:
      return "nearest_exact";
    case Upsampling::nearest:
      return "nearest";
    default:
      return "unknown upsampling";
  }
}

Tensor upsample1d(const Tensor& x, std::int64_t out, Upsampling how,
                  const UpsampleOptions& options) {
  check_kind("upsample1d", how, false);
  const AsImages rows = as_images("upsample1d", x, false);
  return resized("upsample1d", x, rows, {1, out}, resampling("upsample1d", how, options));
}

Tensor upsample2d(const Tensor& x, Size2 out, Upsampling how, const UpsampleOptions& options) {
  check_kind("upsample2d", how, true);
  const AsImages images = as_images("upsample2d", x, true);
  return resized("upsample2d", x, images, out, resampling("upsample2d", how, options));
}

Tensor upsample3d(const Tensor& x, Size3 out, Upsampling how, const UpsampleOptions& options) {
  check_kind("upsample3d", how, false);
  as_volumes("upsample3d", x);
  require_volume_size("upsample3d", out.d, out.h, out.w);
  resampling("upsample3d", how, options);  // throws on options that do not fit
  const auto planes = [&](const Tensor& t) { return upsample2d(t, {out.h, out.w}, how, options); };
  const auto depths = [&](const Tensor& t) {
    return upsample2d(t, {out.d, t.size(3)}, how, options);
  };
  if (how != Upsampling::linear) return in_two("upsample3d", x, planes, depths);
  return cast(in_two("upsample3d", wide(x), planes, depths), x.dtype());
}

}  // namespace firn
