// Windows of images as columns and their sums (im2col, col2im), and windows along an axis. All are
// copies and sums of strided views; the sum of several windows is rounded to 16 bits once.
#include <algorithm>

#include "base/checked.h"
#include "firn/ops/rearrange.h"
#include "kernels/math/image/window.h"
#include "ops/gradient/again.h"
#include "ops/parts.h"

namespace firn {

using namespace ops;

namespace {

/// Calls add(to), which adds several contributions to `to`, so that x = beta*x + their sum.
template <class Add>
void sum_into(const View& x, float beta, Stream stream, Add&& add) {
  const DType sums = compute_dtype(x.dtype);
  if (sums == x.dtype) {
    if (beta == 0) kernels::fill(x, 0, stream);
    return add(x);
  }
  const OwnerScope owner(Owner::workspace);
  const Tensor own = empty(x.shape, sums, x.device);
  kernels::fill(own.mutable_view(), 0, stream);
  add(own.mutable_view());
  kernels::axpby(1, own.view(), beta, x, stream);
}

// ---- Along an axis ----

struct AxisWindows {
  int axis;
  std::int64_t size, step, count;

  /// x's windows: `axis` counts them, and a new last axis has their positions.
  template <class V>
  V of(V x) const {
    const std::int64_t stride = x.strides[axis];
    x.shape[axis] = count;
    x.shape.push_back(size);
    if (count > 1) x.strides[axis] = step * stride;
    x.strides.push_back(stride);
    return x;
  }
  /// dx = beta*dx + the sum of the windows dy at their places.
  void fold(const ConstView& dy, const View& dx, float beta, Stream stream) const {
    sum_into(dx, beta, stream, [&](const View& to) {
      if (count <= 1 || step >= size) return kernels::axpby(1, dy, 1, of(to), stream);
      const int last = dy.rank() - 1;
      if (count < size) {  // window by window
        for (std::int64_t i = 0; i < count; ++i) {
          ConstView window = part(dy, axis, i, 1);
          std::swap(window.shape[axis], window.shape[last]);
          std::swap(window.strides[axis], window.strides[last]);
          window.shape.pop_back();
          window.strides.pop_back();
          kernels::axpby(1, window, 1, part(to, axis, i * step, size), stream);
        }
        return;
      }
      for (std::int64_t k = 0; k < size; ++k) {  // position by position
        ConstView positions = part(dy, last, k, 1);
        positions.shape.pop_back();
        positions.strides.pop_back();
        kernels::axpby(1, positions, 1, part(to, axis, k, count, step), stream);
      }
    });
  }
};

// ---- Images ----

math::WindowAxis windows_along(const char* op, const char* axis, std::int64_t in,
                               std::int64_t window, std::int64_t dilation, std::int64_t padding,
                               std::int64_t stride) {
  const std::int64_t most = std::max({window, dilation, padding, stride});
  FIRN_CHECK(window > 0 && dilation > 0 && padding >= 0 && stride > 0 && most <= kMostPositions, op,
             "sizes count positions from 1",
             "along the {}: window {}, dilation {} and stride {} must be positive, padding {} 0 or "
             "more (and fit in 32 bits)",
             axis, window, dilation, stride, padding);
  FIRN_CHECK(in >= 0 && in <= kMostPositions, op, "take parts of it",
             "the {} of the image, {}, must be 0 or more (and fit in 32 bits)", axis, in);
  const std::int64_t room = in + 2 * padding - dilation * (window - 1) - 1;
  FIRN_CHECK(room >= 0, op, "take a smaller window, or pad",
             "along the {}: a window of {} positions, {} apart, is larger than the image of {} "
             "with {} of padding on both sides",
             axis, window, dilation, in, padding);
  math::WindowAxis a;
  a.in = in;
  a.out = room / stride + 1;
  a.size = window;
  a.stride = stride;
  a.padding = padding;
  a.dilation = dilation;
  return a;
}

/// The windows of images [n, c, h, w].
struct ImageWindows {
  math::WindowAxis h, w;

  ImageWindows(const char* op, std::int64_t height, std::int64_t width, Size2 window,
               const WindowOptions& o)
      : h(windows_along(op, "height", height, window.h, o.dilation.h, o.padding.h, o.stride.h)),
        w(windows_along(op, "width", width, window.w, o.dilation.w, o.padding.w, o.stride.w)) {}

  std::int64_t positions() const { return h.size * w.size; }
  std::int64_t count() const { return h.out * w.out; }

  /// Columns without gaps, [n, c, window.h, window.w, p, q].
  template <class V>
  V columns(V v, std::int64_t n, std::int64_t c) const {
    v.shape = {n, c, h.size, w.size, h.out, w.out};
    v.strides = contiguous_strides(v.shape);
    return v;
  }
  /// Views these elements in images that include the padding.
  template <class V>
  V windows(V v) const {
    const std::int64_t down = v.strides[2], across = v.strides[3];
    v.shape = {v.shape[0], v.shape[1], h.size, w.size, h.out, w.out};
    v.strides = {v.strides[0],        v.strides[1],    h.dilation * down,
                 w.dilation * across, h.stride * down, w.stride * across};
    return v;
  }
  void gather(const ConstView& x, const View& columns, Stream stream) const {
    if (columns.numel() == 0) return;
    if (h.padding == 0 && w.padding == 0) return kernels::copy(windows(x), columns, stream);
    const OwnerScope owner(Owner::workspace);
    Shape shape = x.shape;
    shape[2] = checked_sum("unfold", shape[2], 2 * h.padding);
    shape[3] = checked_sum("unfold", shape[3], 2 * w.padding);
    const Tensor padded = empty(shape, x.dtype, x.device);
    kernels::fill(padded.mutable_view(), 0, stream);
    const View rows = part(padded.mutable_view(), 2, h.padding, x.shape[2]);
    kernels::copy(x, part(rows, 3, w.padding, x.shape[3]), stream);
    kernels::copy(windows(padded.view()), columns, stream);
  }
  /// x = beta*x + the sum of the windows at their places.
  void scatter(const ConstView& columns, const View& x, float beta, Stream stream) const {
    sum_into(x, beta, stream, [&](const View& to) {
      for (std::int64_t i = 0; i < h.size; ++i) {
        const math::Range rows = h.windows_with(i, {0, h.in});
        if (rows.begin >= rows.end) continue;
        for (std::int64_t j = 0; j < w.size; ++j) {
          const math::Range across = w.windows_with(j, {0, w.in});
          if (across.begin >= across.end) continue;
          const std::int64_t p = rows.end - rows.begin, q = across.end - across.begin;
          ConstView tap = part(part(columns, 2, i, 1), 3, j, 1);
          tap = part(part(tap, 4, rows.begin, p), 5, across.begin, q);
          tap.shape = {tap.shape[0], tap.shape[1], p, q};
          tap.strides = {tap.strides[0], tap.strides[1], tap.strides[4], tap.strides[5]};
          const std::int64_t row = h.first(rows.begin) + i * h.dilation;
          const std::int64_t column = w.first(across.begin) + j * w.dilation;
          const View at = part(part(to, 2, row, p, h.stride), 3, column, q, w.stride);
          kernels::axpby(1, tap, 1, at, stream);
        }
      }
    });
  }
};

/// A view with a batch.
template <class V>
V batched(V v, int rank) {
  if (v.rank() == rank) return v;
  v.shape.insert(0, 1);
  v.strides.insert(0, 0);
  return v;
}

}  // namespace

Tensor unfold_axis(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step) {
  const char* const op = "unfold_axis";
  require_defined(op, x);
  if (x.rank() == 0) {  // one window, so a step of 1 is as good as a larger one
    const std::int64_t only = step == 1 ? 2 : step;
    return squeeze(unfold_axis(reshape(x, {1}), axis, size, only), 0);
  }
  const int a = normalize_axis(op, axis, x.rank());
  const std::int64_t n = x.size(a);
  FIRN_CHECK(size >= 0 && size <= n, op, "pad() makes the axis longer",
             "size {} is not between 0 and {}, the size of axis {} of {}", size, n, a, describe(x));
  FIRN_CHECK(step > 0, op, "1 takes every window", "step {} must be positive", step);
  require_rank(op, x.rank() + 1, x);
  const AxisWindows windows{a, size, step, (n - size) / step + 1};
  const ConstView seen = windows.of(x.view());
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", a}, {"size", size}, {"step", step}});
  const auto backward = [windows](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    windows.fold(b.grad().view(), dx.mutable_view(), beta, b.stream());
  };
  const auto again = [windows](GraphBackward& b) {
    const auto folded = [&](const Tensor& dy) {
      const Tensor dx = empty(b.input_shape(0), dy.dtype(), dy.device());
      windows.fold(dy.view(), dx.mutable_view(), 0, stream_of(dx));
      return dx;
    };
    b.add(0, transposed_map("unfold_axis_gradient", b.grad(), folded, [windows](const Tensor& v) {
            return unfold_axis(v, windows.axis, windows.size, windows.step);
          }));
  };
  return record(op, x.as_strided(seen.shape, seen.strides), {&x}, {}, with_again(backward, again));
}

Tensor unfold(const Tensor& x, Size2 window, const WindowOptions& options) try {
  const char* const op = "unfold";
  require_defined(op, x);
  FIRN_CHECK(x.rank() == 4 || x.rank() == 3, op, "reshape it; unfold_axis() is torch.Tensor.unfold",
             "x is [n, c, h, w] or [c, h, w], "
             "got {}",
             describe(x));
  const ImageWindows windows(op, x.size(-2), x.size(-1), window, options);
  const ConstView images = batched(x.view(), 4);
  const std::int64_t n = images.shape[0], c = images.shape[1];
  Shape shape{n, checked_product(op, c, windows.positions()), windows.count()};
  if (x.rank() == 3) shape.erase(0);
  const Tensor y = empty(shape, x.dtype(), x.device());
  windows.gather(images, windows.columns(y.mutable_view(), n, c), stream_of(x));
  const auto backward = [windows, n, c](Backward& b) {
    const Tensor dy = contiguous(b.grad());
    const auto [dx, beta] = b.sink(0);
    windows.scatter(windows.columns(dy.view(), n, c), batched(dx.mutable_view(), 4), beta,
                    b.stream());
  };
  const auto again = [window, options](GraphBackward& b) {
    const Shape& s = b.input_shape(0);
    b.add(0, fold(b.grad(), {s[s.size() - 2], s[s.size() - 1]}, window, options));
  };
  return record(op, y, {&x}, {}, with_again(backward, again));
}
FIRN_OUT_OF_MEMORY("unfold")

Tensor fold(const Tensor& x, Size2 out, Size2 window, const WindowOptions& options) try {
  const char* const op = "fold";
  require_floating(op, x);
  FIRN_CHECK(x.rank() == 3 || x.rank() == 2, op, "reshape it",
             "x is [n, c window.h window.w, l] or without n, got {}", describe(x));
  const ImageWindows windows(op, out.h, out.w, window, options);
  FIRN_CHECK(x.size(-2) % windows.positions() == 0, op, "x is made by unfold() of such windows",
             "axis {} of {} is not a multiple of {} positions of a window", x.rank() - 2,
             describe(x), windows.positions());
  FIRN_CHECK(x.size(-1) == windows.count(), op, "x is made by unfold() of such images",
             "{} has {} windows, but images of {} x {} have {} x {}", describe(x), x.size(-1),
             out.h, out.w, windows.h.out, windows.w.out);
  const Tensor dense = contiguous(x);
  const std::int64_t n = x.rank() == 3 ? x.size(0) : 1, c = x.size(-2) / windows.positions();
  Shape shape{n, c, out.h, out.w};
  if (x.rank() == 2) shape.erase(0);
  checked_elements(op, shape);
  const Tensor y = empty(shape, x.dtype(), x.device());
  windows.scatter(windows.columns(dense.view(), n, c), batched(y.mutable_view(), 4), 0,
                  stream_of(x));
  const auto backward = [windows, n, c](Backward& b) {
    const Tensor dx = empty(b.input_shape(0), b.grad().dtype(), b.grad().device());
    windows.gather(batched(b.grad().view(), 4), windows.columns(dx.mutable_view(), n, c),
                   b.stream());
    b.accumulate(0, dx);
  };
  const auto again = [window, options](GraphBackward& b) {
    b.add(0, unfold(b.grad(), window, options));
  };
  return record(op, y, {&x}, {}, with_again(backward, again));
}
FIRN_OUT_OF_MEMORY("fold")

}  // namespace firn
