// Rules of convolutions, pooling, resizing, and norms over channels.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "kernels/math/image/resize.h"
#include "kernels/math/image/window.h"
#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

Integers joined(Integers before, const Integers& after) {
  before.insert(before.end(), after.begin(), after.end());
  return before;
}
Integers kernel_of(Emit& e) {
  Integers out;
  for (std::int64_t i = 2; i < e.rank(1); ++i) out.push_back(e.size(i, 1));
  return out;
}

void conv(Emit& e) {
  const std::string y = e("Conv", {e.in(0), e.in(1), e.in(2)},
                          {{"kernel_shape", kernel_of(e)},
                           {"strides", e.integers("stride")},
                           {"pads", joined(e.integers("before"), e.integers("after"))},
                           {"dilations", e.integers("dilation")},
                           {"group", e.integer("groups")}});
  e.done(e.integer("relu") != 0 ? e("Relu", {y}) : y);
}

void conv_transpose(Emit& e) {
  const Integers padding = e.integers("padding");
  e.done(e("ConvTranspose", {e.in(0), e.in(1), e.in(2)},
           {{"kernel_shape", kernel_of(e)},
            {"strides", e.integers("stride")},
            {"pads", joined(padding, padding)},
            {"output_padding", e.integers("output_padding")},
            {"dilations", e.integers("dilation")},
            {"group", e.integer("groups")}}));
}

// ---- Pooling ----

/// An axis of images and its windows.
struct PoolAxis {
  std::int64_t axis;  ///< counted from the end
  math::WindowAxis windows;
  /// Number of zeros that the last window needs after the image; more than `padding` in ceil_mode.
  std::int64_t after() const {
    return std::max<std::int64_t>(
        0, windows.first(windows.out - 1) + windows.dilation * (windows.size - 1) + 1 - windows.in);
  }
  /// Returns true if adaptive windows have one size and do not overlap.
  bool even() const { return windows.in % windows.out == 0; }
};

std::vector<PoolAxis> pool_axes(Emit& e) {
  const bool adaptive = e.integer("adaptive") != 0;
  std::vector<PoolAxis> out;
  for (std::size_t i = e.integer("has_height") != 0 ? 0 : 1; i < 2; ++i) {
    const std::int64_t axis = i == 0 ? -2 : -1;
    const Sizes& y = e.result().shape;
    math::WindowAxis w;
    w.in = e.size(axis);
    w.out = y[y.size() - (i == 0 ? 2 : 1)].fixed;
    w.adaptive = adaptive;
    if (!adaptive) {
      w.size = e.integers("size")[i];
      w.stride = e.integers("stride")[i];
      w.padding = e.integers("padding")[i];
      w.dilation = e.integers("dilation")[i];
    }
    out.push_back({axis, w});
  }
  return out;
}

/// Returns the windows as attributes. Adaptive windows must be even.
NodeAttributes windows_of(const std::vector<PoolAxis>& axes, bool dilations) {
  Integers kernel, strides, before, after, dilation;
  for (const PoolAxis& a : axes) {
    const math::WindowAxis& w = a.windows;
    const std::int64_t even = w.in / w.out;
    kernel.push_back(w.adaptive ? even : w.size);
    strides.push_back(w.adaptive ? even : w.stride);
    before.push_back(w.adaptive ? 0 : w.padding);
    after.push_back(w.adaptive ? 0 : a.after());
    dilation.push_back(w.dilation);
  }
  NodeAttributes out = {
      {"kernel_shape", kernel}, {"strides", strides}, {"pads", joined(before, after)}};
  if (dilations) out.push_back({"dilations", dilation});
  return out;
}

bool all_even(const std::vector<PoolAxis>& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [](const PoolAxis& a) { return !a.windows.adaptive || a.even(); });
}

/// Adds the batch axis, which ONNX's pooling requires.
std::string with_batch(Emit& e, const std::string& x) {
  return e.integer("batched") != 0 ? x : e.unsqueeze(x, {0});
}
std::string without_batch(Emit& e, const std::string& y) {
  return e.integer("batched") != 0 ? y : e.squeeze(y, {0});
}

/// Returns the maxima of windows of any sizes. Along each axis it gathers their positions, with the
/// last one repeated.
std::string max_of_windows(Emit& e, std::string x, const std::vector<PoolAxis>& axes) {
  for (const PoolAxis& a : axes) {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < a.windows.out; ++i) {
      const math::Range r = a.windows.positions(i);
      most = std::max(most, r.end - r.begin);
    }
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < a.windows.out; ++i) {
      const math::Range r = a.windows.positions(i);
      for (std::int64_t k = 0; k < most; ++k) positions.push_back(std::min(r.begin + k, r.end - 1));
    }
    const std::string at = e.graph.initializer(
        "windows", firn::tensor(positions, {a.windows.out, most}, Device::cpu()));
    const std::int64_t axis = e.rank() + a.axis;
    x = e("Gather", {x, at}, {{"axis", axis}});
    x = e("ReduceMax", {x}, {{"axes", Integers{axis + 1}}, {"keepdims", std::int64_t{0}}});
  }
  return x;
}

void max_pool(Emit& e) {
  const std::vector<PoolAxis> axes = pool_axes(e);
  if (!all_even(axes)) return e.done(max_of_windows(e, e.in(), axes));
  const std::string x = with_batch(e, e.in());
  e.done(without_batch(e, e("MaxPool", {x}, windows_of(axes, true))));
}

/// Returns a matrix of means over windows of any sizes, [out, in].
std::string means(Emit& e, const math::WindowAxis& w) {
  std::vector<double> m(static_cast<std::size_t>(w.out * w.in));
  for (std::int64_t i = 0; i < w.out; ++i) {
    const math::Range r = w.positions(i);
    for (std::int64_t p = r.begin; p < r.end; ++p)
      m[static_cast<std::size_t>(i * w.in + p)] = 1 / static_cast<double>(r.end - r.begin);
  }
  return e.graph.initializer("means",
                             firn::cast(firn::tensor(m, {w.out, w.in}, Device::cpu()), e.dtype));
}

void avg_pool(Emit& e) {
  if (e.given("whole"))
    return e.done(e("ReduceMean", {e.in()},
                    {{"axes", Integers{-2, -1}},
                     {"keepdims", static_cast<std::int64_t>(e.result().shape.size() ==
                                                            e.value().shape.size())}}));
  const std::vector<PoolAxis> axes = pool_axes(e);
  if (!all_even(axes)) {  // the mean of a window is a mean over rows, then over columns
    const std::string rows =
        axes.size() == 1 ? e.in() : e("MatMul", {means(e, axes[0].windows), e.in()});
    return e.done(e("MatMul", {rows, e("Transpose", {means(e, axes.back().windows)})}));
  }
  const bool count_padding = e.integer("count_padding") != 0;
  NodeAttributes attributes = windows_of(axes, false);
  attributes.push_back({"count_include_pad", static_cast<std::int64_t>(count_padding)});
  std::string y = e("AveragePool", {with_batch(e, e.in())}, attributes);
  // A window that extends beyond the padding in ceil_mode has fewer positions than its size.
  for (const PoolAxis& a : axes) {
    if (!count_padding || a.windows.adaptive || a.after() <= a.windows.padding) continue;
    std::vector<double> factors;
    for (std::int64_t i = 0; i < a.windows.out; ++i)
      factors.push_back(static_cast<double>(a.windows.size) /
                        static_cast<double>(a.windows.divisor(i, true)));
    const Tensor along = cast(firn::tensor(factors, {a.windows.out}, Device::cpu()), e.dtype);
    y = e("Mul",
          {y, e.graph.initializer("counts", a.axis == -1 ? along : firn::unsqueeze(along, 1))});
  }
  e.done(without_batch(e, y));
}

// ---- Resizing ----

void upsample(Emit& e, int axes) {
  using math::ResizeAxis, math::ResizeKind;
  const Sizes& to = e.result().shape;
  const auto kind = static_cast<ResizeKind>(e.integer("kind"));
  const auto made = [&to](std::int64_t axis) {
    return to[to.size() - static_cast<std::size_t>(-axis)].fixed;
  };
  const bool same = made(-1) == e.size(-1) && (axes == 1 || made(-2) == e.size(-2));
  if (!same && (kind == ResizeKind::linear || kind == ResizeKind::cubic)) {
    const bool batched = e.rank() == axes + 2;
    Sizes sizes = to;
    if (!batched) sizes.insert(sizes.begin(), {1, 0});
    const std::string x = batched ? e.in() : e.unsqueeze(e.in(), {0});
    NodeAttributes attributes = {
        {"mode", std::string(kind == ResizeKind::cubic ? "cubic" : "linear")},
        {"coordinate_transformation_mode",
         std::string(e.integer("align_corners") != 0 ? "align_corners" : "half_pixel")}};
    if (kind == ResizeKind::cubic) attributes.push_back({"cubic_coeff_a", -0.75f});
    const std::string y = e("Resize", {x, "", "", e.graph.shape(sizes)}, attributes);
    return e.done(batched ? y : e.squeeze(y, {0}));
  }
  // The positions are computed as integers, because those that Resize computes in f32 may be off by
  // one.
  std::string y = e.in();
  for (std::int64_t axis = -axes; axis < 0; ++axis) {
    const ResizeAxis resized(e.size(axis), made(axis), kind, false);
    if (resized.in == resized.out) continue;
    std::vector<std::int64_t> from;
    for (std::int64_t i = 0; i < resized.out; ++i) from.push_back(resized.nearest(i));
    y = e("Gather", {y, e.graph.list(from)}, {{"axis", e.rank() + axis}});
  }
  e.done(y);
}
void upsample_rows(Emit& e) { upsample(e, 1); }
void upsample_images(Emit& e) { upsample(e, 2); }

// ---- Norms over channels ----

/// Returns a parameter [c] in the dtype of the computation, or one number for all channels.
std::string by_channel(Emit& e, std::size_t i, double otherwise) {
  if (e.has(i)) return e.in(i);
  return e.graph.initializer(otherwise == 1 ? "ones" : "zeros",
                             full({e.size(1)}, otherwise, e.dtype, Device::cpu()));
}

void batch_norm(Emit& e) {
  const auto moment = [&e](const char* name) {
    const std::string m = e.tensor(name);
    return e.tensor_value(name).dtype == e.dtype ? m : e.cast(m, e.dtype);
  };
  e.done(e("BatchNormalization",
           {e.in(0), by_channel(e, 1, 1), by_channel(e, 2, 0), moment("mean"), moment("var")},
           {{"epsilon", static_cast<float>(e.number("eps"))}}));
}

/// Writes group norm: the groups of channels of each sample are instances of [n, groups, l].
void group_norm(Emit& e) {
  const std::int64_t groups = e.integer("groups");
  const Sizes& shape = e.value().shape;
  std::int64_t length = e.size(1) / groups;
  for (int i = 2; i < e.rank(); ++i) length *= e.size(i);
  const std::string x = e.reshape(e.in(0), {shape[0], {groups, 0}, {length, 0}});
  const NodeAttributes along = {{"axes", Integers{2}}, {"keepdims", std::int64_t{1}}};
  const std::string distance = e("Sub", {x, e("ReduceMean", {x}, along)});
  const std::string variance = e("ReduceMean", {e("Mul", {distance, distance})}, along);
  const std::string root = e("Sqrt", {e("Add", {variance, e.constant(e.number("eps"))})});
  std::string y = e.reshape(e("Div", {distance, root}), shape);
  Integers inserted;
  for (int i = 2; i < e.rank(); ++i) inserted.push_back(i - 1);
  const auto parameter = [&](std::size_t i) {
    return inserted.empty() ? e.in(i) : e.unsqueeze(e.in(i), inserted);
  };
  if (e.has(1)) y = e("Mul", {y, parameter(1)});
  if (e.has(2)) y = e("Add", {y, parameter(2)});
  e.done(y);
}

const std::array kRules = {
    Rule{"conv1d", Width::wide, conv},
    Rule{"conv2d", Width::wide, conv},
    Rule{"conv3d", Width::wide, conv},
    Rule{"conv_transpose1d", Width::wide, conv_transpose},
    Rule{"conv_transpose2d", Width::wide, conv_transpose},
    Rule{"conv_transpose3d", Width::wide, conv_transpose},
    Rule{"max_pool1d", Width::same, max_pool},
    Rule{"max_pool2d", Width::same, max_pool},
    Rule{"adaptive_max_pool1d", Width::same, max_pool},
    Rule{"adaptive_max_pool2d", Width::same, max_pool},
    Rule{"avg_pool1d", Width::wide, avg_pool},
    Rule{"avg_pool2d", Width::wide, avg_pool},
    Rule{"adaptive_avg_pool1d", Width::wide, avg_pool},
    Rule{"adaptive_avg_pool2d", Width::wide, avg_pool},
    Rule{"global_avg_pool2d", Width::wide, avg_pool},
    Rule{"upsample1d", Width::wide, upsample_rows},
    Rule{"upsample2d", Width::wide, upsample_images},
    Rule{"batch_norm", Width::wide, batch_norm},
    Rule{"group_norm", Width::wide, group_norm},
    Rule{"instance_norm", Width::wide, group_norm},
};

}  // namespace

std::span<const Rule> image_rules() { return kRules; }

}  // namespace firn::io::onnx
