// Pooling made of other pooling: volumes, as images and then rows, and means of powers.
#include <cmath>

#include "firn/ops/elementwise.h"
#include "firn/ops/pool.h"
#include "ops/image/images.h"
#include "ops/image/pool_checks.h"
#include "ops/image/volumes.h"

namespace firn {

using namespace ops;

namespace {

Pool2dOptions of_planes(const Pool3dOptions& o) {
  return {.stride = {o.stride.h, o.stride.w},
          .padding = {o.padding.h, o.padding.w},
          .dilation = {o.dilation.h, o.dilation.w},
          .ceil_mode = o.ceil_mode,
          .count_padding = o.count_padding};
}
Pool2dOptions of_depths(const Pool3dOptions& o) {
  return {.stride = {o.stride.d, 1},
          .padding = {o.padding.d, 0},
          .dilation = {o.dilation.d, 1},
          .ceil_mode = o.ceil_mode,
          .count_padding = o.count_padding};
}

/// Throws unless x are volumes to which the windows fit. `most` means pooling of maxima, whose
/// positions fit in 32 bits, and whose windows may have gaps.
void require_windows(const char* op, const Tensor& x, Size3 window, Pool3dOptions o, bool most) {
  as_volumes(op, x);
  FIRN_CHECK(most || (o.dilation.d == 1 && o.dilation.h == 1 && o.dilation.w == 1), op, kNoGaps,
             "dilation is {} x {} x {}, not 1", o.dilation.d, o.dilation.h, o.dilation.w);
  const auto along = [&](const char* axis, int from_end, std::int64_t size, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
    return windows_along(op, axis, x.size(from_end), size, stride, padding, dilation, o.ceil_mode);
  };
  along("depth", -3, window.d, o.stride.d, o.padding.d, o.dilation.d);
  const auto h = along("height", -2, window.h, o.stride.h, o.padding.h, o.dilation.h);
  const auto w = along("width", -1, window.w, o.stride.w, o.padding.w, o.dilation.w);
  if (!most) return;
  require_positions(op, x.size(-2), x.size(-1));
  require_positions(op, x.size(-3), h * w);
}

/// The root of `count` times the mean of powers, as PyTorch computes it: 0 has the gradient 0.
Tensor root_of_sums(const Tensor& means, double count, double p, DType dtype) {
  const Tensor sums = sign(means.detach()) * relu(abs(means)) * count;
  return cast(p == 1 ? sums : pow(sums, 1 / p), dtype);
}

Tensor power(const char* op, const Tensor& x, double p, const Pool2dOptions& options) {
  require_floating(op, x);
  FIRN_CHECK(std::isfinite(p) && p > 0, op, "2 gives Euclidean norms; max_pool2d() is the limit",
             "p = {} is not a finite number above 0", p);
  FIRN_CHECK(options.padding == Size2(0) && options.dilation == Size2(1), op,
             "pad() before it, and leave dilation at 1",
             "padding {} x {} and dilation {} x {} are not 0 and 1", options.padding.h,
             options.padding.w, options.dilation.h, options.dilation.w);
  return p == 1 ? wide(x) : pow(wide(x), p);
}

}  // namespace

// ---- Volumes ----

Tensor max_pool3d(const Tensor& x, Size3 window, const Pool3dOptions& options) {
  require_windows("max_pool3d", x, window, options, true);
  return in_two(
      "max_pool3d", x,
      [&](const Tensor& t) {
        return max_pool2d(t, {window.h, window.w}, of_planes(options));
      },
      [&](const Tensor& t) {
        return max_pool2d(t, {window.d, 1}, of_depths(options));
      });
}

Tensor avg_pool3d(const Tensor& x, Size3 window, const Pool3dOptions& options) {
  require_windows("avg_pool3d", x, window, options, false);
  return cast(in_two(
                  "avg_pool3d", wide(x),
                  [&](const Tensor& t) {
                    return avg_pool2d(t, {window.h, window.w}, of_planes(options));
                  },
                  [&](const Tensor& t) {
                    return avg_pool2d(t, {window.d, 1}, of_depths(options));
                  }),
              x.dtype());
}

Tensor adaptive_max_pool3d(const Tensor& x, Size3 out) {
  as_volumes("adaptive_max_pool3d", x);
  require_volume_size("adaptive_max_pool3d", out.d, out.h, out.w);
  require_positions("adaptive_max_pool3d", x.size(-2), x.size(-1));
  require_positions("adaptive_max_pool3d", x.size(-3), out.h * out.w);
  return in_two(
      "adaptive_max_pool3d", x,
      [&](const Tensor& t) {
        return adaptive_max_pool2d(t, {out.h, out.w});
      },
      [&](const Tensor& t) {
        return adaptive_max_pool2d(t, {out.d, t.size(3)});
      });
}

Tensor adaptive_avg_pool3d(const Tensor& x, Size3 out) {
  as_volumes("adaptive_avg_pool3d", x);
  require_volume_size("adaptive_avg_pool3d", out.d, out.h, out.w);
  return cast(in_two(
                  "adaptive_avg_pool3d", wide(x),
                  [&](const Tensor& t) {
                    return adaptive_avg_pool2d(t, {out.h, out.w});
                  },
                  [&](const Tensor& t) {
                    return adaptive_avg_pool2d(t, {out.d, t.size(3)});
                  }),
              x.dtype());
}

// ---- Powers ----

Tensor lp_pool2d(const Tensor& x, double p, Size2 window, const Pool2dOptions& options) {
  constexpr const char* kOp = "lp_pool2d";
  as_images(kOp, x, true);
  Size2 stride = options.stride;
  windows_along(kOp, "height", x.size(-2), window.h, stride.h, 0, 1, options.ceil_mode);
  windows_along(kOp, "width", x.size(-1), window.w, stride.w, 0, 1, options.ceil_mode);
  const Tensor means = avg_pool2d(power(kOp, x, p, options), window, options);
  return root_of_sums(means, static_cast<double>(window.h) * static_cast<double>(window.w), p,
                      x.dtype());
}

Tensor lp_pool1d(const Tensor& x, double p, std::int64_t window, const Pool2dOptions& options) {
  // The height of the options does not count, as in avg_pool1d().
  Pool2dOptions along = options;
  along.padding.h = 0;
  along.dilation.h = 1;
  as_images("lp_pool1d", x, false);
  std::int64_t stride = options.stride.w;
  windows_along("lp_pool1d", "width", x.size(-1), window, stride, 0, 1, options.ceil_mode);
  const Tensor means = avg_pool1d(power("lp_pool1d", x, p, along), window, along);
  return root_of_sums(means, static_cast<double>(window), p, x.dtype());
}

}  // namespace firn
