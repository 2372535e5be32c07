#include "ops/image/conv_volumes.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/math/image/window.h"
#include "ops/common.h"
#include "ops/parts.h"

namespace firn::ops {

namespace {

using math::Range;

/// Largest number of bytes of copied slices at a time.
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

/// Volumes [n, c, d, h, w] as images [n d, c, h, w]. See slices_merge().
template <class V>
V slices(V v) {
  const std::int64_t step = v.strides[v.shape[2] == 1 ? 0 : 2];
  v.shape = {v.shape[0] * v.shape[2], v.shape[1], v.shape[3], v.shape[4]};
  v.strides = {step, v.strides[1], v.strides[3], v.strides[4]};
  return v;
}
bool slices_merge(const ConstView& v) {
  return v.shape[0] <= 1 || v.shape[2] == 1 || v.strides[0] == v.shape[2] * v.strides[2];
}

Tensor workspace(const Shape& shape, DType dtype, Device device) {
  const OwnerScope owner(Owner::workspace);
  return empty(shape, dtype, device);
}

/// Maps a kernel's taps along depth to the slices of x that they read, and to channels.
struct Taps {
  math::WindowAxis axis;           ///< windows along the depth; `out` counts the results
  std::int64_t n, channels, h, w;  ///< sizes of x
  std::int64_t groups;

  static Taps of(const ConstView& x, const ConstView& weight, const ConstView& y,
                 const VolumeGeometry& g) {
    Taps t;
    t.axis.in = x.shape[2];
    t.axis.out = y.shape[2];
    t.axis.size = weight.shape[2];
    t.axis.stride = g.stride[0];
    t.axis.padding = g.before[0];
    t.axis.dilation = g.dilation[0];
    t.n = x.shape[0];
    t.channels = x.shape[1];
    t.h = x.shape[3];
    t.w = x.shape[4];
    t.groups = g.groups;
    return t;
  }

  /// The results whose tap k reads a slice of x; others read the padding.
  Range outputs(std::int64_t k) const {
    const Range r = axis.windows_with(k, {0, axis.in});
    return {std::min(r.begin, r.end), r.end};
  }
  bool whole(const Range& r) const { return r.begin == 0 && r.end == axis.out; }
  /// True if a slice of x serves as it is: nothing has to be copied.
  bool in_place() const { return axis.size == 1 && whole(outputs(0)); }
  /// The slices that tap k reads for those results, as a part of x or of its gradient.
  template <class V>
  V read(V x, std::int64_t k, const Range& results) const {
    const std::int64_t first = results.begin * axis.stride + k * axis.dilation - axis.padding;
    x = part(x, 2, first, results.end - results.begin, axis.stride);
    return x;
  }

  std::int64_t group() const { return channels / groups; }
  std::int64_t columns() const { return channels * axis.size; }
  std::int64_t sample() const { return axis.out * columns() * h * w; }
  /// Samples whose copied slices are made at a time.
  std::int64_t samples(DType dtype) const {
    const std::int64_t bytes =
        std::max<std::int64_t>(1, sample()) * static_cast<std::int64_t>(size_of(dtype));
    return std::clamp<std::int64_t>(kMostBytes / bytes, 1, std::max<std::int64_t>(1, n));
  }

  // ---- Copied slices: images [n out, groups t c/groups, h, w], channels-last ----

  Tensor make(std::int64_t count, DType dtype, Device device) const {
    return workspace({count * axis.out, h, w, columns()}, dtype, device);
  }
  template <class V>
  V images(V made) const {
    made.shape = {made.shape[0], columns(), h, w};
    made.strides = {h * w * columns(), 1, w * columns(), columns()};
    return made;
  }
  /// The part of tap k and some results, as [n, results, h, w, groups, c/groups].
  template <class V>
  V tap(V made, std::int64_t k, const Range& results) const {
    const std::int64_t slice = h * w * columns();
    made.shape = {
        made.shape[0] / std::max<std::int64_t>(1, axis.out), axis.out, h, w, groups, group()};
    made.strides = {axis.out * slice, slice, w * columns(), columns(), axis.size * group(), 1};
    made = advanced(made, k * group());
    return part(made, 1, results.begin, results.end - results.begin, 1);
  }
  /// Views [n, c, d, h, w] in the same order of axes.
  template <class V>
  V by_group(const V& x) const {
    V v = x;
    v.shape = {x.shape[0], x.shape[2], x.shape[3], x.shape[4], groups, group()};
    v.strides = {x.strides[0], x.strides[2],           x.strides[3],
                 x.strides[4], group() * x.strides[1], x.strides[1]};
    return v;
  }

  Tensor gather(const ConstView& x, Stream stream) const {
    const Tensor made = make(x.shape[0], x.dtype, x.device);
    for (std::int64_t k = 0; k < axis.size; ++k) {
      const Range r = outputs(k);
      for (const Range& zero : {Range{0, r.begin}, Range{r.end, axis.out}})
        if (zero.begin < zero.end) kernels::fill(tap(made.mutable_view(), k, zero), 0, stream);
      if (r.begin < r.end)
        kernels::copy(by_group(read(x, k, r)), tap(made.mutable_view(), k, r), stream);
    }
    return made;
  }

  /// dx = beta*dx + the contributions of its taps. The sum of several is rounded to 16 bits once.
  void fold(const ConstView& made, const View& dx, float beta, Stream stream) const {
    const DType sums = compute_dtype(dx.dtype);
    const bool apart = sums != dx.dtype;
    Tensor own;
    View to = dx;
    if (apart) {
      own = workspace({dx.shape[0], dx.shape[2], h, w, channels}, sums, dx.device);
      to = own.mutable_view();
      to.shape = dx.shape;
      to.strides = strides_in(dx.shape, MemoryFormat::channels_last);
    }
    // The tap that reads all of x goes first, so that nothing need be filled with zeros.
    std::int64_t first = -1;
    for (std::int64_t k = 0; k < axis.size && first < 0; ++k)
      if (axis.stride == 1 && axis.in == axis.out && whole(outputs(k))) first = k;
    float scale = apart ? 0 : beta;
    if (first < 0 && scale == 0) {
      kernels::fill(to, 0, stream);
      scale = 1;
    }
    const auto add = [&](std::int64_t k) {
      const Range r = outputs(k);
      if (r.begin < r.end)
        kernels::axpby(1, tap(made, k, r), scale, by_group(read(to, k, r)), stream);
    };
    if (first >= 0) add(first);
    scale = 1;
    for (std::int64_t k = 0; k < axis.size; ++k)
      if (k != first) add(k);
    if (apart) kernels::axpby(1, to, beta, dx, stream);
  }

  // ---- The weight [k, c/groups, t, r, s] as [k, t c/groups, r, s] ----

  Tensor make_weight(const ConstView& weight, DType dtype) const {
    return workspace({weight.shape[0], weight.shape[3], weight.shape[4], axis.size * group()},
                     dtype, weight.device);
  }
  template <class V>
  static V flat_weight(V made) {
    const Shape s = made.shape;
    made.shape = {s[0], s[3], s[1], s[2]};
    made.strides = {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]};
    return made;
  }
  template <class V>
  V by_tap(V made) const {
    const Shape s = made.shape;
    made.shape = {s[0], group(), axis.size, s[1], s[2]};
    made.strides = {s[1] * s[2] * s[3], 1, group(), s[2] * s[3], s[3]};
    return made;
  }
};

/// A weight or its gradient, of one tap along depth.
template <class V>
V without_depth(V v) {
  v.shape.erase(2);
  v.strides.erase(2);
  return v;
}

/// The weight as that of images; `own` keeps a copy alive.
ConstView flattened(const Taps& taps, const ConstView& weight, Tensor& own, Stream stream) {
  if (taps.axis.size == 1) return without_depth(weight);
  own = taps.make_weight(weight, weight.dtype);
  kernels::copy(weight, taps.by_tap(own.mutable_view()), stream);
  return taps.flat_weight(own.view());
}

/// Calls fn(first, count) for parts of the batch: once at least, so that an empty batch counts.
template <class Fn>
void each_part(std::int64_t n, std::int64_t at_a_time, Fn&& fn) {
  std::int64_t first = 0;
  do {
    fn(first, std::min(at_a_time, n - first));
    first += at_a_time;
  } while (first < n);
}

/// The images that the product reads: x itself, or copied slices, which `own` keeps alive.
ConstView read_images(const Taps& taps, const ConstView& x, Tensor& own, Stream stream) {
  if (taps.in_place()) {
    const ConstView read = taps.read(x, 0, {0, taps.axis.out});
    if (slices_merge(read)) return slices(read);
  }
  own = taps.gather(x, stream);
  return taps.images(own.view());
}

/// True if the backend's kernel takes the operands as they are.
bool takes(kernels::ConvPass pass, const ConstView& x, const ConstView& w, const ConstView& y,
           bool bias, const VolumeGeometry& geometry) {
  return x.rank() == 4 || kernels::conv_takes_volumes(pass, x, w, y, bias, geometry.whole());
}

}  // namespace

void conv_forward(const ConstView& x, const ConstView& w, const ConstView& bias, bool relu,
                  const VolumeGeometry& geometry, const View& y, Stream stream) {
  if (takes(kernels::ConvPass::forward, x, w, y, bias.data != nullptr, geometry))
    return kernels::conv_forward(x, w, bias, relu, geometry.whole(), y, stream);
  const Taps taps = Taps::of(x, w, y, geometry);
  Tensor own_weight;
  const ConstView weight = flattened(taps, w, own_weight, stream);
  each_part(taps.n, taps.samples(x.dtype), [&](std::int64_t first, std::int64_t count) {
    Tensor own;
    const ConstView images = read_images(taps, part(x, 0, first, count), own, stream);
    kernels::conv_forward(images, weight, bias, relu, geometry.plane(),
                          slices(part(y, 0, first, count)), stream);
  });
}

void conv_data_gradient(const ConstView& dy, const ConstView& w, const VolumeGeometry& geometry,
                        const View& dx, float beta, Stream stream) {
  if (takes(kernels::ConvPass::data, dx, w, dy, false, geometry))
    return kernels::conv_data_gradient(dy, w, geometry.whole(), dx, beta, stream);
  const Taps taps = Taps::of(dx, w, dy, geometry);
  Tensor own_weight;
  const ConstView weight = flattened(taps, w, own_weight, stream);
  const bool in_place = taps.in_place() && taps.axis.in == taps.axis.out && slices_merge(dx);
  const DType sums = compute_dtype(dx.dtype);
  each_part(taps.n, taps.samples(sums), [&](std::int64_t first, std::int64_t count) {
    const ConstView from = slices(part(dy, 0, first, count));
    const View to = part(dx, 0, first, count);
    if (in_place)
      return kernels::conv_data_gradient(from, weight, geometry.plane(), slices(to), beta, stream);
    const Tensor made = taps.make(count, sums, dx.device);
    kernels::conv_data_gradient(from, weight, geometry.plane(), taps.images(made.mutable_view()), 0,
                                stream);
    taps.fold(made.view(), to, beta, stream);
  });
}

void conv_weight_gradient(const ConstView& dy, const ConstView& x, const VolumeGeometry& geometry,
                          const View& dw, float beta, Stream stream) {
  if (takes(kernels::ConvPass::weight, x, dw, dy, false, geometry))
    return kernels::conv_weight_gradient(dy, x, geometry.whole(), dw, beta, stream);
  const Taps taps = Taps::of(x, dw, dy, geometry);
  const std::int64_t at_a_time = taps.samples(x.dtype);
  // Parts of the batch add up in the compute dtype, and are rounded once.
  const DType sums = compute_dtype(dw.dtype);
  const bool apart = taps.axis.size > 1 || (sums != dw.dtype && at_a_time < taps.n);
  const Tensor own = apart ? taps.make_weight(dw, sums) : Tensor();
  const View to = apart ? taps.flat_weight(own.mutable_view()) : without_depth(dw);
  each_part(taps.n, at_a_time, [&](std::int64_t first, std::int64_t count) {
    Tensor own_images;
    const ConstView images = read_images(taps, part(x, 0, first, count), own_images, stream);
    kernels::conv_weight_gradient(slices(part(dy, 0, first, count)), images, geometry.plane(), to,
                                  first > 0 ? 1
                                  : apart   ? 0
                                            : beta,
                                  stream);
  });
  if (apart) kernels::axpby(1, taps.by_tap(own.view()), beta, dw, stream);
}

}  // namespace firn::ops
