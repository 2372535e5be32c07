// Conv1d, Conv2d, Conv3d and their transposed ones.
#include "firn/nn/layers/conv.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"
#include "nn/layers/sizes.h"
#include "ops/common.h"
#include "ops/image/output_padding.h"

namespace firn::nn {
namespace {

/// The last `axes` of three numbers, or one if all are equal.
std::string text_of_axes(const Size3& v, int axes) {
  return axes == 3 ? text(v) : text(Size2(axes == 2 ? v.h : v.w, v.w));
}

Size3 lifted(Size2 v, std::int64_t depth) { return {depth, v.h, v.w}; }
/// True if all three numbers are `least` or more, and fit in 32 bits.
bool at_least(const Size3& v, std::int64_t least) {
  using firn::ops::kMostPositions;
  return std::min({v.d, v.h, v.w}) >= least && std::max({v.d, v.h, v.w}) <= kMostPositions;
}

/// The sizes that all layers share, along the last `axes` of depth, height and width. Sizes of the
/// other axes are 1. The constructors check them.
struct Sizes {
  int axes;
  std::int64_t in, out;
  Size3 kernel, stride, padding, dilation;
  std::int64_t groups;
  std::string shown(const Size3& v) const { return text_of_axes(v, axes); }
};

template <class Options>
Sizes sizes(std::int64_t in, std::int64_t out, std::int64_t kernel, const Options& o,
            std::int64_t padding) {
  return {1,       in, out, {1, 1, kernel}, {1, 1, o.stride}, {0, 0, padding}, {1, 1, o.dilation},
          o.groups};
}
template <class Options>
Sizes sizes(std::int64_t in, std::int64_t out, Size2 kernel, const Options& o, Size2 padding) {
  return {2,
          in,
          out,
          lifted(kernel, 1),
          lifted(o.stride, 1),
          lifted(padding, 0),
          lifted(o.dilation, 1),
          o.groups};
}
template <class Options>
Sizes sizes(std::int64_t in, std::int64_t out, const Size3& kernel, const Options& o,
            const Size3& padding) {
  return {3, in, out, kernel, o.stride, padding, o.dilation, o.groups};
}

void check_sizes(const char* layer, const Sizes& z) {
  FIRN_CHECK(z.in > 0 && z.out > 0, layer, "give the numbers of channels before and after",
             "in = {} and out = {} must be positive", z.in, z.out);
  FIRN_CHECK(at_least(z.kernel, 1), layer, "give the kernel's size along each axis",
             "kernel {} must be positive (and fit in 32 bits)", z.shown(z.kernel));
  FIRN_CHECK(z.groups > 0 && z.in % z.groups == 0 && z.out % z.groups == 0, layer,
             "channels are cut into groups before and after",
             "groups = {} must divide in = {} and out = {}", z.groups, z.in, z.out);
  FIRN_CHECK(at_least(z.stride, 1) && at_least(z.dilation, 1), layer, "1 takes every position",
             "stride {} and dilation {} must be positive (and fit in 32 bits)", z.shown(z.stride),
             z.shown(z.dilation));
  FIRN_CHECK(at_least(z.padding, 0), layer, "slice the input to make it smaller",
             "padding {} must not be negative (and must fit in 32 bits)", z.shown(z.padding));
}

/// Checks the limits of output_padding along the last axes.
void check_more(const char* layer, const Sizes& z, const Size3& more) {
  using firn::ops::check_output_padding;
  if (z.axes == 3) check_output_padding(layer, "depth", more.d, z.stride.d, z.dilation.d);
  if (z.axes >= 2) check_output_padding(layer, "height", more.h, z.stride.h, z.dilation.h);
  check_output_padding(layer, z.axes == 1 ? "length" : "width", more.w, z.stride.w, z.dilation.w);
}

/// The elements of a weight at one position of its first axis, which start as if each result were a
/// sum over this number of inputs. Throws Error naming the layer if no tensor can have that shape.
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

/// Makes the parameters of checked sizes. A weight is [out, in/groups, kernel], and that of a
/// transposed layer [in, out/groups, kernel].
void start(const char* layer, const Sizes& z, bool transposed, bool biased, DType dtype,
           Device device, Parameter& weight, Parameter& bias) {
  const std::int64_t first = transposed ? z.in : z.out, second = transposed ? z.out : z.in;
  Shape shape{first, second / z.groups};
  if (z.axes == 3) shape.push_back(z.kernel.d);
  if (z.axes >= 2) shape.push_back(z.kernel.h);
  shape.push_back(z.kernel.w);
  const std::int64_t fan_in = fan_in_of(layer, shape);
  check_dtype(layer, dtype);
  weight = uniform(shape, fan_in, dtype, device);
  if (biased) bias = uniform({z.out}, fan_in, dtype, device);
}

/// Returns the sizes, and the options that differ from the defaults.
std::string repr(const Sizes& z, bool same, bool bias, Activation activation) {
  std::string text = fmt::format("{}, {}, {}", z.in, z.out, z.shown(z.kernel));
  const auto unless = [&](const char* name, const Size3& v, std::int64_t usual) {
    if (v.h != usual || v.w != usual || (z.axes == 3 && v.d != usual))
      text += fmt::format(", {} = {}", name, z.shown(v));
  };
  unless("stride", z.stride, 1);
  if (same) text += ", padding = same";
  if (!same) unless("padding", z.padding, 0);
  unless("dilation", z.dilation, 1);
  if (z.groups != 1) text += fmt::format(", groups = {}", z.groups);
  if (!bias) text += ", bias = false";
  if (activation != Activation::none)
    text += fmt::format(", activation = {}", to_string(activation));
  return text;
}

/// The channels of a layer by its weight.
struct Channels {
  std::int64_t in, out;
};
Channels channels(const Parameter& weight, std::int64_t groups) {
  return {weight.size(1) * groups, weight.size(0)};
}
Channels transposed_channels(const Parameter& weight, std::int64_t groups) {
  return {weight.size(0), weight.size(1) * groups};
}

/// ", output_padding = ..." unless it is 0.
std::string more_text(const Sizes& z, const Size3& more) {
  return more == Size3(0) ? "" : ", output_padding = " + z.shown(more);
}

template <class Of, class Options>
Of for_op(const Options& o) {
  return {.stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation,
          .groups = o.groups,
          .activation = o.activation};
}
template <class Of, class Options>
Of for_transposed_op(const Options& o) {
  return {.stride = o.stride,
          .padding = o.padding,
          .output_padding = o.output_padding,
          .dilation = o.dilation,
          .groups = o.groups};
}

}  // namespace

FIRN_DEFINE_MEMBERS(Conv1d, weight, bias)
FIRN_DEFINE_MEMBERS(Conv2d, weight, bias)
FIRN_DEFINE_MEMBERS(Conv3d, weight, bias)
FIRN_DEFINE_MEMBERS(ConvTranspose2d, weight, bias)
FIRN_DEFINE_MEMBERS(ConvTranspose1d, weight, bias)
FIRN_DEFINE_MEMBERS(ConvTranspose3d, weight, bias)

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv1dOptions& options)
    : options_(for_op<firn::Conv1dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding.around.w);
  check_sizes("Conv1d", z);
  require_named("Conv1d", "Activation", options.activation, Activation::gelu_tanh);
  start("Conv1d", z, false, options.bias, options.dtype, options.device, weight, bias);
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight, bias, options_); }

std::string Conv1d::extra_repr() const {
  const auto [in, out] = channels(weight, options_.groups);
  return repr(sizes(in, out, weight.size(2), options_, options_.padding.around.w),
              options_.padding.same, bias.defined(), options_.activation);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, const Conv2dOptions& options)
    : options_(for_op<firn::Conv2dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding.around);
  check_sizes("Conv2d", z);
  require_named("Conv2d", "Activation", options.activation, Activation::gelu_tanh);
  start("Conv2d", z, false, options.bias, options.dtype, options.device, weight, bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

std::string Conv2d::extra_repr() const {
  const auto [in, out] = channels(weight, options_.groups);
  return repr(
      sizes(in, out, Size2(weight.size(2), weight.size(3)), options_, options_.padding.around),
      options_.padding.same, bias.defined(), options_.activation);
}

Conv3d::Conv3d(std::int64_t in, std::int64_t out, Size3 kernel, const Conv3dOptions& options)
    : options_(for_op<firn::Conv3dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding.around);
  check_sizes("Conv3d", z);
  require_named("Conv3d", "Activation", options.activation, Activation::gelu_tanh);
  start("Conv3d", z, false, options.bias, options.dtype, options.device, weight, bias);
}

Tensor Conv3d::forward(const Tensor& x) { return conv3d(x, weight, bias, options_); }

std::string Conv3d::extra_repr() const {
  const auto [in, out] = channels(weight, options_.groups);
  return repr(sizes(in, out, Size3(weight.size(2), weight.size(3), weight.size(4)), options_,
                    options_.padding.around),
              options_.padding.same, bias.defined(), options_.activation);
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 const ConvTranspose1dOptions& options)
    : options_(for_transposed_op<firn::ConvTranspose1dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding);
  check_sizes("ConvTranspose1d", z);
  check_more("ConvTranspose1d", z, Size3(0, 0, options.output_padding));
  start("ConvTranspose1d", z, true, options.bias, options.dtype, options.device, weight, bias);
}

Tensor ConvTranspose1d::forward(const Tensor& x) {
  return conv_transpose1d(x, weight, bias, options_);
}

std::string ConvTranspose1d::extra_repr() const {
  const auto [in, out] = transposed_channels(weight, options_.groups);
  const Sizes z = sizes(in, out, weight.size(2), options_, options_.padding);
  return repr(z, false, bias.defined(), Activation::none) +
         more_text(z, Size3(0, 0, options_.output_padding));
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, Size2 kernel,
                                 const ConvTranspose2dOptions& options)
    : options_(for_transposed_op<firn::ConvTranspose2dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding);
  check_sizes("ConvTranspose2d", z);
  check_more("ConvTranspose2d", z, lifted(options.output_padding, 0));
  start("ConvTranspose2d", z, true, options.bias, options.dtype, options.device, weight, bias);
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias, options_);
}

std::string ConvTranspose2d::extra_repr() const {
  const auto [in, out] = transposed_channels(weight, options_.groups);
  const Sizes z = sizes(in, out, Size2(weight.size(2), weight.size(3)), options_, options_.padding);
  return repr(z, false, bias.defined(), Activation::none) +
         more_text(z, lifted(options_.output_padding, 0));
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in, std::int64_t out, Size3 kernel,
                                 const ConvTranspose3dOptions& options)
    : options_(for_transposed_op<firn::ConvTranspose3dOptions>(options)) {
  const Sizes z = sizes(in, out, kernel, options, options.padding);
  check_sizes("ConvTranspose3d", z);
  check_more("ConvTranspose3d", z, options.output_padding);
  start("ConvTranspose3d", z, true, options.bias, options.dtype, options.device, weight, bias);
}

Tensor ConvTranspose3d::forward(const Tensor& x) {
  return conv_transpose3d(x, weight, bias, options_);
}

std::string ConvTranspose3d::extra_repr() const {
  const auto [in, out] = transposed_channels(weight, options_.groups);
  const Sizes z = sizes(in, out, Size3(weight.size(2), weight.size(3), weight.size(4)), options_,
                        options_.padding);
  return repr(z, false, bias.defined(), Activation::none) + more_text(z, options_.output_padding);
}

}  // namespace firn::nn
