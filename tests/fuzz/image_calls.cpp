// Convolutions, pooling, resampling and norms by channel.
#include <algorithm>

#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

Size2 extent(Draw& d, const char* name, std::int64_t low, std::int64_t high) {
  if (d.chance(60)) return d.number(name, low, high);
  const std::int64_t h = d.number(name, low, high);
  return {h, d.number(name, low, high)};
}

Activation activation(Draw& d) {
  return d.one_of({Activation::none, Activation::relu, Activation::gelu_tanh});
}

struct Operands {
  Tensor x, weight, bias;
  std::int64_t groups;
};

/// x, weight and bias that fit mostly. `transposed`: the weight's first axis is of x's channels.
Operands operands(Draw& d, int spatial, bool transposed) {
  const std::int64_t groups = 1 + d.below(3), in = d.chance(5) ? 0 : 1 + d.below(3),
                     out = d.chance(5) ? 0 : 1 + d.below(3);
  Shape x{d.chance(5) ? 0 : 1 + d.below(3), in * groups};
  Shape weight = transposed ? Shape{in * groups, out} : Shape{out * groups, in};
  for (int i = 0; i < spatial; ++i) {
    x.push_back(d.chance(5) ? d.below(2) : 1 + d.below(9));
    weight.push_back(d.chance(5) ? d.below(2) : 1 + d.below(3));
  }
  if (d.chance(15)) x.erase(0);
  const DType dtype = d.one_of({f32, f32, f32, f64, f16, bf16});
  Operands o{d.chance(2) ? d.any() : d.of(x, dtype), d.of(weight, dtype),
             d.of({out * groups}, dtype), d.chance(85) ? groups : d.integer(0, 4)};
  if (d.chance(50)) o.bias = {};
  d.say(" groups=" + std::to_string(o.groups));
  return o;
}

Results convolved(Draw& d) {
  const Operands o = operands(d, 2, false);
  Conv2dOptions options;
  options.groups = o.groups;
  options.stride = extent(d, "stride", 1, 3);
  options.dilation = extent(d, "dilation", 1, 2);
  const Size2 around = extent(d, "padding", 0, 2);
  options.padding = d.chance(20) ? kSamePadding : ConvPadding(around.h, around.w);
  options.activation = activation(d);
  return {conv2d(o.x, o.weight, o.bias, options)};
}

Results convolved_1d(Draw& d) {
  const Operands o = operands(d, 1, false);
  Conv1dOptions options;
  options.groups = o.groups;
  options.stride = d.number("stride", 1, 3);
  options.dilation = d.number("dilation", 1, 2);
  options.padding = d.chance(20) ? kSamePadding : ConvPadding(d.number("padding", 0, 2));
  options.activation = activation(d);
  return {conv1d(o.x, o.weight, o.bias, options)};
}

Results convolved_back(Draw& d) {
  const Operands o = operands(d, 2, true);
  ConvTranspose2dOptions options;
  options.groups = o.groups;
  options.stride = extent(d, "stride", 1, 3);
  options.dilation = extent(d, "dilation", 1, 2);
  options.padding = extent(d, "padding", 0, 1);
  options.output_padding = extent(d, "output_padding", 0, 0);
  return {conv_transpose2d(o.x, o.weight, o.bias, options)};
}

Size3 volume(Draw& d, std::string_view name, std::int64_t low, std::int64_t high) {
  const Dims v = d.numbers(name, 3, low, high);
  return {v[0], v[1], v[2]};
}

Results convolved_3d(Draw& d) {
  const Operands o = operands(d, 3, false);
  Conv3dOptions options;
  options.groups = o.groups;
  options.stride = volume(d, "stride", 1, 3);
  options.dilation = volume(d, "dilation", 1, 2);
  if (d.chance(20))
    options.padding = kSamePadding;
  else
    options.padding.around = volume(d, "padding", 0, 2);
  options.activation = activation(d);
  return {conv3d(o.x, o.weight, o.bias, options)};
}

Results convolved_back_3d(Draw& d) {
  const Operands o = operands(d, 3, true);
  ConvTranspose3dOptions options;
  options.groups = o.groups;
  options.stride = volume(d, "stride", 1, 3);
  options.dilation = volume(d, "dilation", 1, 2);
  options.padding = volume(d, "padding", 0, 1);
  options.output_padding = volume(d, "output_padding", 0, 0);
  return {conv_transpose3d(o.x, o.weight, o.bias, options)};
}

Results convolved_back_1d(Draw& d) {
  const Operands o = operands(d, 1, true);
  ConvTranspose1dOptions options;
  options.groups = o.groups;
  options.stride = d.number("stride", 1, 3);
  options.dilation = d.number("dilation", 1, 2);
  options.padding = d.number("padding", 0, 1);
  options.output_padding = d.number("output_padding", 0, 1);
  return {conv_transpose1d(o.x, o.weight, o.bias, options)};
}

Tensor images(Draw& d, int spatial) {
  Shape shape{d.chance(8) ? 0 : 1 + d.below(3), d.chance(8) ? 0 : 1 + d.below(5)};
  for (int i = 0; i < spatial; ++i) shape.push_back(d.chance(3) ? 0 : 1 + d.below(12));
  if (d.chance(15)) shape.erase(0);
  return d.chance(2) ? d.small() : d.of(shape, d.one_of({f32, f32, f64, f16, bf16}));
}

Results windowed(Draw& d) {
  if (d.chance(30)) {
    d.say(" along an axis");
    const Tensor x = d.floating(0, 5);
    return {unfold_axis(x, d.integer(-1, 4), d.number("size", 0, 4), d.number("step", 1, 4))};
  }
  const Tensor x = images(d, 2);
  WindowOptions options;
  options.dilation = extent(d, "dilation", 1, 2);
  options.padding = extent(d, "padding", 0, 2);
  options.stride = extent(d, "stride", 1, 3);
  const Size2 window = extent(d, "window", 1, 4);
  const Tensor y = unfold(x, window, options);
  d.say(" folded");
  const Size2 out = d.chance(90) ? Size2(x.size(-2), x.size(-1)) : extent(d, "out", 1, 9);
  return {y, fold(y, out, window, options)};
}

Results pooled(Draw& d) {
  const bool one = d.flag("1d"), mean = d.flag("mean");
  const Tensor x = images(d, one ? 1 : 2);
  Pool2dOptions options;
  options.stride = extent(d, "stride", 0, 3);
  options.padding = extent(d, "padding", 0, 1);
  options.dilation = mean && d.chance(90) ? Size2(1) : extent(d, "dilation", 1, 2);
  options.ceil_mode = d.flag("ceil_mode");
  options.count_padding = d.flag("count_padding");
  if (one) {
    const std::int64_t window = d.number("window", 1, 4);
    return {mean ? avg_pool1d(x, window, options) : max_pool1d(x, window, options)};
  }
  Size2 window = extent(d, "window", 1, 4);
  if (d.chance(10)) {  // the largest padding that goes with it
    options.padding = {std::max<std::int64_t>(window.h / 2, 0),
                       std::max<std::int64_t>(window.w / 2, 0)};
    d.say(" padding of half the window");
  }
  return {mean ? avg_pool2d(x, window, options) : max_pool2d(x, window, options)};
}

Results upsampled(Draw& d) {
  const auto how = d.one_of(
      {Upsampling::nearest, Upsampling::nearest_exact, Upsampling::linear, Upsampling::bicubic});
  const UpsampleOptions options{.align_corners = d.flag("align_corners")};
  d.say(std::string(" ") + to_string(how));
  switch (d.below(3)) {
    case 0: {
      const Tensor x = images(d, 1);
      return {upsample1d(x, d.number("out", 1, 12), how, options)};
    }
    case 1: {
      const Tensor x = images(d, 3);
      return {upsample3d(x, volume(d, "out", 1, 9), how, options)};
    }
    default: {
      const Tensor x = images(d, 2);
      return {upsample2d(x, extent(d, "out", 1, 12), how, options)};
    }
  }
}

Results resized(Draw& d) {
  if (d.chance(50)) return upsampled(d);
  const Tensor x = images(d, 2);
  const Size2 out = extent(d, "out", 1, 12);
  switch (d.below(5)) {
    case 0:
      d.say(" adaptive max");
      return {adaptive_max_pool2d(x, out)};
    case 1:
      d.say(" adaptive mean");
      return {adaptive_avg_pool2d(x, out)};
    case 2:
      d.say(" global mean");
      return {global_avg_pool2d(x)};
    case 3:
      d.say(" bilinear");
      return {upsample2d(x, out, Upsampling::bilinear)};
    default:
      d.say(" nearest");
      return {upsample2d(x, out, Upsampling::nearest)};
  }
}

Results pooled_otherwise(Draw& d) {
  switch (d.below(5)) {
    case 0: {
      const bool mean = d.flag("mean");
      const Tensor x = images(d, 3);
      Pool3dOptions options;
      options.stride = volume(d, "stride", 0, 3);
      options.padding = volume(d, "padding", 0, 1);
      if (!mean) options.dilation = volume(d, "dilation", 1, 2);
      options.ceil_mode = d.flag("ceil_mode");
      options.count_padding = d.flag("count_padding");
      const Size3 window = volume(d, "window", 1, 4);
      return {mean ? avg_pool3d(x, window, options) : max_pool3d(x, window, options)};
    }
    case 1: {
      const bool mean = d.flag("mean");
      const Tensor x = images(d, 3);
      const Size3 out = volume(d, "out", 1, 9);
      return {mean ? adaptive_avg_pool3d(x, out) : adaptive_max_pool3d(x, out)};
    }
    case 2: {
      const bool mean = d.flag("mean");
      const Tensor x = images(d, 1);
      const std::int64_t out = d.number("out", 1, 9);
      return {mean ? adaptive_avg_pool1d(x, out) : adaptive_max_pool1d(x, out)};
    }
    case 3: {
      d.say(" powers");
      const Tensor x = images(d, 2);
      const double p = d.real("p");
      return {lp_pool2d(x, p, extent(d, "window", 1, 4), {.ceil_mode = d.flag("ceil_mode")})};
    }
    default: {
      d.say(" local response");
      const Tensor x = d.floating(1, 6);
      return {local_response_norm(x, d.number("size", 1, 5))};
    }
  }
}

Results normalised(Draw& d) {
  const Tensor x = d.floating(1, 6);
  const std::int64_t channels = x.rank() > 1 ? x.shape()[1] : 1;
  const DType dtype = d.chance(50) ? x.dtype() : compute_dtype(x.dtype());
  const Tensor weight = d.maybe(d.of({channels}, dtype)), bias = d.maybe(d.of({channels}, dtype));
  const double eps = d.chance(70) ? 1e-5 : d.real("eps");
  switch (d.below(4)) {
    case 0: {
      d.say(" group");
      const std::int64_t groups = d.chance(50) ? channels : d.integer(0, 3);
      d.say(" groups=" + std::to_string(groups));
      return {group_norm(x, groups, weight, bias, eps)};
    }
    case 1:
      d.say(" instance");
      return {instance_norm(x, weight, bias, eps)};
    case 2: {
      d.say(" batch, given moments");
      const DType wide = compute_dtype(x.dtype());
      const Moments moments{d.of({channels}, wide), d.of({channels}, wide)};
      return {batch_norm(x, weight, bias, moments, eps)};
    }
    default:
      d.say(" batch");
      Moments moments;
      const Tensor y = batch_norm(x, weight, bias, eps, &moments);
      return {y, moments.mean, moments.var};
  }
}

}  // namespace

std::vector<Call> image_calls() {
  std::vector<Call> calls;
  for (int i = 0; i < 5; ++i) {
    const Call all[] = {{"conv2d", convolved},
                        {"conv1d", convolved_1d},
                        {"conv_transpose2d", convolved_back},
                        {"conv3d", convolved_3d},
                        {"conv_transpose3d", convolved_back_3d},
                        {"conv_transpose1d", convolved_back_1d},
                        {"windows", windowed},
                        {"pool", pooled},
                        {"resize", resized},
                        {"norm by channel", normalised},
                        {"other pooling", pooled_otherwise}};
    calls.insert(calls.end(), std::begin(all), std::end(all));
  }
  return calls;
}

}  // namespace fuzz
