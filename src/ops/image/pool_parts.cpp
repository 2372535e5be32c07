// Pooling made of other pooling: volumes, as images and then rows, and means of powers.
#include <cmath>

#include "firn/ops/elementwise.h"
#include "firn/ops/pool.h"
#include "ops/common.h"
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
  require_floating("avg_pool3d", x);
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
  require_floating("adaptive_avg_pool3d", x);
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
  const Tensor means = avg_pool2d(power("lp_pool2d", x, p, options), window, options);
  return root_of_sums(means, static_cast<double>(window.h) * static_cast<double>(window.w), p,
                      x.dtype());
}

Tensor lp_pool1d(const Tensor& x, double p, std::int64_t window, const Pool2dOptions& options) {
  // The height of the options does not count, as in avg_pool1d().
  Pool2dOptions along = options;
  along.padding.h = 0;
  along.dilation.h = 1;
  const Tensor means = avg_pool1d(power("lp_pool1d", x, p, along), window, along);
  return root_of_sums(means, static_cast<double>(window), p, x.dtype());
}

}  // namespace firn
