// Conv1d, Conv2d, ConvTranspose2d.
#include "firn/nn/layers/conv.h"

#include <cmath>

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"
#include "ops/image/output_padding.h"

namespace firn::nn {
namespace {

std::string pair(Size2 v) {
  return v.h == v.w ? fmt::format("{}", v.h) : fmt::format("{} x {}", v.h, v.w);
}

/// The sizes that all three layers share; the constructors check them.
struct Sizes {
  std::int64_t in, out;
  Size2 kernel, stride, padding, dilation;
  std::int64_t groups;
};

void check_sizes(const char* layer, const Sizes& z) {
  FIRN_CHECK(z.in > 0 && z.out > 0, layer, "give the numbers of channels before and after",
             "in = {} and out = {} must be positive", z.in, z.out);
  FIRN_CHECK(z.kernel.h > 0 && z.kernel.w > 0, layer, "give the kernel's height and width",
             "kernel {} x {} must be positive", z.kernel.h, z.kernel.w);
  FIRN_CHECK(z.groups > 0 && z.in % z.groups == 0 && z.out % z.groups == 0, layer,
             "channels are cut into groups before and after",
             "groups = {} must divide in = {} and out = {}", z.groups, z.in, z.out);
  FIRN_CHECK(z.stride.h > 0 && z.stride.w > 0 && z.dilation.h > 0 && z.dilation.w > 0, layer,
             "1 takes every position", "stride {} and dilation {} must be positive", pair(z.stride),
             pair(z.dilation));
  FIRN_CHECK(z.padding.h >= 0 && z.padding.w >= 0, layer, "slice the input to make it smaller",
             "padding {} must not be negative", pair(z.padding));
}

/// The elements of a weight at one position of its first axis, which start as if each result were
/// a sum over so many inputs. Throws Error naming the layer if no tensor can have that shape.
std::int64_t fan_in_of(const char* layer, const Shape& weight) {
  return checked_elements(layer, weight) / weight[0];
}

/// A parameter that starts as PyTorch's layers do, for a sum over `fan_in` inputs.
Parameter uniform(const Shape& shape, std::int64_t fan_in, DType dtype, Device device) {
  const bool weight = shape.size() > 1;
  const Tensor value =
      empty(shape, dtype, device, weight ? MemoryFormat::channels_last : MemoryFormat::contiguous);
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  init::uniform_(value, -bound, bound);
  return Parameter(value);
}

/// The options that differ from the defaults.
std::string unusual(const Sizes& z, bool same, bool bias, Activation activation) {
  std::string text;
  if (!(z.stride == Size2(1))) text += fmt::format(", stride = {}", pair(z.stride));
  if (same) text += ", padding = same";
  if (!same && !(z.padding == Size2(0))) text += fmt::format(", padding = {}", pair(z.padding));
  if (!(z.dilation == Size2(1))) text += fmt::format(", dilation = {}", pair(z.dilation));
  if (z.groups != 1) text += fmt::format(", groups = {}", z.groups);
  if (!bias) text += ", bias = false";
  if (activation != Activation::none)
    text += fmt::format(", activation = {}", to_string(activation));
  return text;
}

}  // namespace

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv1dOptions& options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups,
               .activation = options.activation} {
  check_sizes("Conv1d", {in, out, kernel, options.stride, options.padding.around, options.dilation,
                         options.groups});
  const Shape shape{out, in / options.groups, kernel};
  const std::int64_t fan_in = fan_in_of("Conv1d", shape);
  weight = uniform(shape, fan_in, options.dtype, options.device);
  if (options.bias) bias = uniform({out}, fan_in, options.dtype, options.device);
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight, bias, options_); }

std::string Conv1d::extra_repr() const {
  const auto& o = options_;
  const std::int64_t in = weight.size(1) * o.groups, out = weight.size(0), kernel = weight.size(2);
  return fmt::format("{}, {}, {}{}", in, out, kernel,
                     unusual({in, out, kernel, o.stride, o.padding.around.w, o.dilation, o.groups},
                             o.padding.same, bias.defined(), o.activation));
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, const Conv2dOptions& options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups,
               .activation = options.activation} {
  check_sizes("Conv2d", {in, out, kernel, options.stride, options.padding.around, options.dilation,
                         options.groups});
  const Shape shape{out, in / options.groups, kernel.h, kernel.w};
  const std::int64_t fan_in = fan_in_of("Conv2d", shape);
  weight = uniform(shape, fan_in, options.dtype, options.device);
  if (options.bias) bias = uniform({out}, fan_in, options.dtype, options.device);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

std::string Conv2d::extra_repr() const {
  const auto& o = options_;
  const std::int64_t in = weight.size(1) * o.groups, out = weight.size(0);
  const Size2 kernel(weight.size(2), weight.size(3));
  return fmt::format("{}, {}, {}{}", in, out, pair(kernel),
                     unusual({in, out, kernel, o.stride, o.padding.around, o.dilation, o.groups},
                             o.padding.same, bias.defined(), o.activation));
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, Size2 kernel,
                                 const ConvTranspose2dOptions& options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .output_padding = options.output_padding,
               .dilation = options.dilation,
               .groups = options.groups} {
  check_sizes("ConvTranspose2d",
              {in, out, kernel, options.stride, options.padding, options.dilation, options.groups});
  const Size2 more = options.output_padding, stride = options.stride, dilation = options.dilation;
  firn::ops::check_output_padding("ConvTranspose2d", "height", more.h, stride.h, dilation.h);
  firn::ops::check_output_padding("ConvTranspose2d", "width", more.w, stride.w, dilation.w);
  const Shape shape{in, out / options.groups, kernel.h, kernel.w};
  const std::int64_t fan_in = fan_in_of("ConvTranspose2d", shape);
  weight = uniform(shape, fan_in, options.dtype, options.device);
  if (options.bias) bias = uniform({out}, fan_in, options.dtype, options.device);
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias, options_);
}

std::string ConvTranspose2d::extra_repr() const {
  const auto& o = options_;
  const std::int64_t in = weight.size(0), out = weight.size(1) * o.groups;
  const Size2 kernel(weight.size(2), weight.size(3));
  std::string text = fmt::format("{}, {}, {}", in, out, pair(kernel));
  text += unusual({in, out, kernel, o.stride, o.padding, o.dilation, o.groups}, false,
                  bias.defined(), Activation::none);
  if (!(o.output_padding == Size2(0)))
    text += fmt::format(", output_padding = {}", pair(o.output_padding));
  return text;
}

}  // namespace firn::nn
