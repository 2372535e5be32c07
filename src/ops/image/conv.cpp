// Convolutions and transposed convolutions. Both use the three products of conv_volumes.h: the
// forward pass of one is the data gradient of the other. The product of a weight gradient
// accumulates into the sink itself, in the sink's dtype.
#include "firn/ops/conv.h"

#include <algorithm>
#include <atomic>

#include "base/checked.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/settings/settings.h"
#include "ops/common.h"
#include "ops/elementwise/symbolic.h"
#include "ops/gradient/again.h"
#include "ops/image/conv_volumes.h"
#include "ops/image/output_padding.h"
#include "ops/switch.h"

namespace firn {

using namespace ops;
using ConvGeometry = VolumeGeometry;

namespace {

/// The number along axis i of depth, height and width.
std::int64_t along(const Size3& v, int i) { return i == 0 ? v.d : i == 1 ? v.h : v.w; }
/// The name of that axis, if there are `spatial` of them.
const char* axis_name(int i, int spatial) {
  constexpr const char* kNames[] = {"depth", "height", "width"};
  return spatial == 1 ? "length" : kNames[i];
}
const char* axes_text(int spatial) {
  return spatial == 3 ? "d, h, w" : spatial == 2 ? "h, w" : "l";
}
/// The last `spatial` of three numbers.
Dims last(const Size3& v, int spatial) {
  Dims out;
  for (int i = 3 - spatial; i < 3; ++i) out.push_back(along(v, i));
  return out;
}
Dims last(const std::array<std::int64_t, 3>& v, int spatial) {
  return last(Size3(v[0], v[1], v[2]), spatial);
}
std::string without_brackets(const Dims& v) {
  const std::string text = to_string(v);
  return text.substr(1, text.size() - 2);
}
Size3 lifted(Size2 v, std::int64_t depth) { return {depth, v.h, v.w}; }

/// Inserts a height of 1 if there is one spatial axis, as the products require.
template <class V>
V planes(V v) {
  if (v.rank() != 3) return v;
  v.shape.insert(2, 1);
  v.strides.insert(2, v.shape[3] * v.strides[2]);
  return v;
}
ConstView seen(const Tensor& t) { return planes(t.view()); }
View written(const Tensor& t) { return planes(t.mutable_view()); }

/// A vector with one number per channel, in a shape that broadcasts to this rank.
template <class V>
V by_channel(V v, int rank) {
  const std::int64_t channels = v.shape[0], stride = v.strides[0];
  v.shape = Dims::filled(rank, 1);
  v.strides = Dims::filled(rank, 0);
  v.shape[1] = channels;
  v.strides[1] = stride;
  return v;
}

struct Steps {
  Size3 stride, dilation;
  std::int64_t groups;
};

void check_numbers(const char* op, const Steps& o, const Size3& padding, int spatial) {
  static constexpr const char* kOrder[] = {"it counts positions along the rows",
                                           "sizes are height and width, in this order",
                                           "sizes are depth, height and width, in this order"};
  const auto at_least = [&](const char* what, const Size3& v, std::int64_t least) {
    const Dims numbers = last(v, spatial);
    FIRN_CHECK(*std::min_element(numbers.begin(), numbers.end()) >= least &&
                   *std::max_element(numbers.begin(), numbers.end()) <= kMostPositions,
               op, kOrder[spatial - 1], "{} = {} must be at least {} (and fit in 32 bits)", what,
               without_brackets(numbers), least);
  };
  at_least("stride", o.stride, 1);
  at_least("dilation", o.dilation, 1);
  at_least("padding", padding, 0);
  FIRN_CHECK(o.groups >= 1, op, "1 mixes all channels", "groups = {} must be at least 1", o.groups);
}

void check_positions(const char* op, const char* axis, std::int64_t padded) {
  FIRN_CHECK(padded <= kMostPositions, op, "convolve parts of it",
             "the {} of the padded input, {}, does not fit in 32 bits", axis, padded);
}

/// Replaces options that have no effect: a stride beyond the last of `places` start positions, and
/// the dilation of a single tap. Otherwise libraries, which count in 32 bits, could overflow.
void drop_idle(ConvGeometry& g, std::size_t at, std::int64_t places, std::int64_t taps) {
  g.stride[at] = std::min(g.stride[at], places);
  if (taps == 1) g.dilation[at] = 1;
}

/// Checks operands with `spatial` axes after batch and channels; the batch axis of x may be
/// missing.
void check_operands(const char* op, const Tensor& x, const Tensor& weight, int spatial) {
  require_floating(op, x);
  require_factors(op, x, weight);
  const char* const axes = axes_text(spatial);
  FIRN_CHECK(x.rank() == spatial + 1 || x.rank() == spatial + 2, op,
             x.rank() == spatial ? "if x has one channel without an axis, say x.unsqueeze(0)"
                                 : "reshape it: the batch's axis may be missing",
             "x is [n, c, {0}] or [c, {0}], got {1}", axes, describe(x));
  FIRN_CHECK(weight.rank() == spatial + 2, op, "a weight has two axes of channels and the kernel's",
             "weight {} has {} axes, not {}", describe(weight), weight.rank(), spatial + 2);
  for (int i = 2; i < weight.rank(); ++i)
    FIRN_CHECK(weight.size(i) > 0, op, "a kernel has a tap at least", "weight {} has no taps",
               describe(weight));
}

/// A hint for an x whose channels do not match the weight's.
std::string channels_hint(const Tensor& x, std::int64_t channels, int spatial) {
  if (x.rank() == spatial + 2) return "x is [n, c, ...]: permute it so that channels are axis 1";
  const std::string one = fmt::format("[c, {}]", axes_text(spatial));
  if (channels == 1)
    return fmt::format("x of {} axes is one {}; x.unsqueeze(1) makes a batch of one channel",
                       x.rank(), one);
  return fmt::format("x of {} axes is one {}; a batch has a first axis more", x.rank(), one);
}

/// Returns a hint if the weight, [out, in / groups, ...], does not take the channels of x.
std::string groups_hint(const Tensor& x, const Tensor& weight, std::int64_t groups, int spatial) {
  const std::int64_t channels = x.size(-1 - spatial), each = weight.size(1);
  const std::int64_t fits =
      each > 0 && channels % each == 0 && channels >= each ? channels / each : 0;
  const bool divides = fits > 0 && weight.size(0) % fits == 0;
  if (groups > 1)
    return divides ? fmt::format("weight is [out, in / groups, ...]: groups = {} fits", fits)
                   : "weight is [out, in / groups, ...]";
  const std::string hint = channels_hint(x, each, spatial);
  return divides && x.rank() == spatial + 2 ? fmt::format("{}, or set groups = {}", hint, fits)
                                            : hint;
}

void check_bias(const char* op, const Tensor& x, const Tensor& bias, const Tensor& weight,
                std::int64_t channels) {
  if (!bias.defined()) return;
  require_factors(op, x, bias);
  FIRN_CHECK(bias.shape() == Shape{channels}, op,
             "a bias is a number for each channel of the result",
             "bias {} for {} channels, weight {}", describe(bias), channels, describe(weight));
}

bool takes_gradient(const Tensor& t) { return t.defined() && t.requires_grad(); }

/// Saves a factor only if the other factor's gradient will read it.
void save_factors(const Tensor& y, const Tensor& x, const Tensor& weight) {
  if (!y.requires_grad()) return;
  autograd::save(y, {takes_gradient(weight) ? x : Tensor(), takes_gradient(x) ? weight : Tensor()});
}

/// db = beta*db + the sum of dy over all axes but the channels.
void accumulate_bias(Backward& back, const ConstView& dy) {
  const auto [db, beta] = back.sink(2);
  kernels::reduce(kernels::ReduceOp::sum, dy, by_channel(db.mutable_view(), dy.rank()), 1.0, beta,
                  back.stream());
}

// The products of a convolution, which are gradients of each other: y from (x, w), x from (y, w),
// and w from (y, x).
Tensor convolve(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                const ConvGeometry& geometry, const Shape& shape, Activation activation);
Tensor convolve_transposed(const char* op, const Tensor& input, const Tensor& weight,
                           const Tensor& bias, const ConvGeometry& geometry, const Shape& shape);
Tensor weight_product(const Tensor& dy, const Tensor& x, const ConvGeometry& geometry,
                      const Shape& shape);
Tensor convolve(const Tensor& x, const Tensor& w, const ConvGeometry& geometry,
                const Shape& shape) {
  return convolve("conv", x, w, {}, geometry, shape, Activation::none);
}
Tensor convolve_transposed(const Tensor& x, const Tensor& w, const ConvGeometry& geometry,
                           const Shape& shape) {
  return convolve_transposed("conv_transpose", x, w, {}, geometry, shape);
}

/// Backward of convolve. Inputs: x, weight, bias. Saved: y if relu was applied, then x and weight.
struct ConvBackward {
  ConvGeometry geometry;
  bool relu;

  void again(GraphBackward& back) const {
    const int first = relu ? 1 : 0;
    const Tensor dy =
        relu ? unary_gradient(math::UnaryOp::relu, back.grad(), back.saved(0), math::Args{})
             : back.grad();
    if (back.needs(0))
      back.add(0, convolve_transposed(dy, back.input(1, first + 1), geometry, back.input_shape(0)));
    if (back.needs(1))
      back.add(1, weight_product(dy, back.input(0, first), geometry, back.input_shape(1)));
    if (back.needs(2)) back.add(2, sum_of_channels(dy));
  }

  void operator()(Backward& back) const {
    const Tensor dy = relu ? masked(back) : channels_last(back.grad());
    const int first = relu ? 1 : 0;
    if (back.needs(0)) {
      const Tensor& w = back.saved(first + 1);
      const auto [dx, beta] = back.sink(0);
      conv_data_gradient(seen(dy), seen(w), geometry, written(dx), beta, back.stream());
    }
    if (back.needs(1)) {
      const Tensor& x = back.saved(first);
      const auto [dw, beta] = back.sink(1);
      conv_weight_gradient(seen(dy), seen(x), geometry, written(dw), beta, back.stream());
    }
    if (back.needs(2)) accumulate_bias(back, seen(dy));
  }

  /// The gradient of relu: dy if y > 0, else 0.
  static Tensor masked(Backward& back) {
    const Tensor& y = back.saved(0);
    Tensor dy = empty_like(y);
    kernels::unary_backward(math::UnaryOp::relu, back.grad().view(), y.view(), dy.mutable_view(),
                            math::Args{}, 0, back.stream());
    return dy;
  }
};

void give_attributes(const char* op, const ConvGeometry& g, bool relu, int spatial) {
  autograd::attributes(op, {{"stride", last(g.stride, spatial)},
                            {"before", last(g.before, spatial)},
                            {"after", last(g.after, spatial)},
                            {"dilation", last(g.dilation, spatial)},
                            {"groups", g.groups},
                            {"relu", relu}});
}

/// x [n, c, ...], checked before, in any memory format.
Tensor convolve(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                const ConvGeometry& geometry, const Shape& shape, Activation activation) {
  const Tensor dense = channels_last(input);
  const Autocasted in(Policy::lower, dense, weight, bias);
  const Tensor &x = in[0], &w = in[1], &b = in[2];
  const bool relu = activation == Activation::relu;
  const double work = static_cast<double>(shape.product()) *
                      static_cast<double>(w.numel() / std::max<std::int64_t>(1, w.size(0)));
  Tensor y =
      autograd::product(work, relu ? autograd::ReadsResult::yes : autograd::ReadsResult::no, [&] {
        const Tensor made = empty(shape, x.dtype(), x.device(), MemoryFormat::channels_last);
        conv_forward(seen(x), seen(w), b.defined() ? b.view() : ConstView{}, relu, geometry,
                     written(made), stream_of(made));
        return made;
      });
  const ConvBackward backward{geometry, relu};
  if (autograd::wants_attributes()) [[unlikely]]
    give_attributes(op, geometry, relu, shape.size() - 2);
  y = relu ? record(op, y, {&x, &w, &b}, {Saved::output()}, backward)
           : record(op, y, {&x, &w, &b}, {}, backward);
  save_factors(y, x, w);
  return activation == Activation::gelu_tanh ? gelu_tanh(y) : y;
}

/// Checks the operands and computes, for one to three spatial axes: the last ones of the options.
Tensor conv(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Conv3dOptions& o, int spatial) {
  const ConvPadding3& padding = o.padding;
  require_named(op, "Activation", o.activation, Activation::gelu_tanh);
  check_numbers(op, {o.stride, o.dilation, o.groups}, padding.around, spatial);
  check_operands(op, x, weight, spatial);
  const std::int64_t k = weight.size(0), c = x.size(-1 - spatial);
  const std::int64_t taken = checked_product(op, weight.size(1), o.groups);
  FIRN_CHECK(taken == c, op, groups_hint(x, weight, o.groups, spatial),
             "x {} has {} channels, weight {} takes {} in {} group(s)", describe(x), c,
             describe(weight), taken, o.groups);
  FIRN_CHECK(k % o.groups == 0, op, "every group makes as many channels",
             "{} channels out cannot be cut into {} groups: weight {}", k, o.groups,
             describe(weight));
  check_bias(op, x, bias, weight, k);

  ConvGeometry g;
  g.groups = o.groups;
  Shape shape{x.rank() == spatial + 2 ? x.size(0) : 1, k};
  for (int i = 3 - spatial; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    g.stride[at] = along(o.stride, i);
    g.dilation[at] = along(o.dilation, i);
    const std::int64_t size = x.size(i - 3), taps = weight.size(i - 3);
    const std::int64_t reach = checked_product(op, g.dilation[at], taps - 1);
    g.before[at] = padding.same ? reach / 2 : along(padding.around, i);
    g.after[at] = padding.same ? reach - reach / 2 : along(padding.around, i);
    FIRN_CHECK(!padding.same || g.stride[at] == 1, op, "give the padding in numbers",
               "padding that keeps the size needs stride 1, not {}", g.stride[at]);
    const std::int64_t padded = checked_sum(op, checked_sum(op, size, g.before[at]), g.after[at]);
    const char* const axis = axis_name(i, spatial);
    FIRN_CHECK(padded > reach, op, "pad more, or take a smaller kernel or dilation",
               "the kernel is larger than the padded input: {} is {} of input and {} of padding, "
               "{} taps at dilation {} reach over {}; x {}, weight {}",
               axis, size, padded - size, taps, g.dilation[at], reach + 1, describe(x),
               describe(weight));
    check_positions(op, axis, padded);
    drop_idle(g, at, padded - reach, taps);
    shape.push_back((padded - reach - 1) / g.stride[at] + 1);
  }
  if (x.rank() == spatial + 2) return convolve(op, x, weight, bias, g, shape, o.activation);
  return squeeze(convolve(op, unsqueeze(x, 0), weight, bias, g, shape, o.activation), 0);
}

/// Backward of convolve_transposed. Inputs: x, weight, bias. Saved: x and weight.
struct TransposedBackward {
  ConvGeometry geometry;

  void operator()(Backward& back) const {
    const Tensor dy = channels_last(back.grad());
    if (back.needs(0)) {
      const Tensor dx =
          empty(back.input_shape(0), dy.dtype(), dy.device(), MemoryFormat::channels_last);
      conv_forward(seen(dy), seen(back.saved(1)), ConstView{}, false, geometry, written(dx),
                   back.stream());
      back.accumulate(0, dx);
    }
    if (back.needs(1)) {  // input and output exchange their roles
      const auto [dw, beta] = back.sink(1);
      conv_weight_gradient(seen(back.saved(0)), seen(dy), geometry, written(dw), beta,
                           back.stream());
    }
    if (back.needs(2)) accumulate_bias(back, seen(dy));
  }
  void again(GraphBackward& back) const {
    const Tensor& dy = back.grad();
    if (back.needs(0)) back.add(0, convolve(dy, back.input(1, 1), geometry, back.input_shape(0)));
    if (back.needs(1))
      back.add(1, weight_product(back.input(0, 0), dy, geometry, back.input_shape(1)));
    if (back.needs(2)) back.add(2, sum_of_channels(dy));
  }
};

/// Backward of weight_product. Inputs and saved: dy, x.
struct WeightProductBackward {
  ConvGeometry geometry;

  void operator()(Backward& back) const {
    const Tensor dw = contiguous(back.grad());
    if (back.needs(0)) {
      const Tensor ddy =
          empty(back.input_shape(0), dw.dtype(), dw.device(), MemoryFormat::channels_last);
      conv_forward(seen(back.saved(1)), seen(dw), ConstView{}, false, geometry, written(ddy),
                   back.stream());
      back.accumulate(0, ddy);
    }
    if (back.needs(1)) {
      const auto [dx, beta] = back.sink(1);
      conv_data_gradient(seen(back.saved(0)), seen(dw), geometry, written(dx), beta, back.stream());
    }
  }
  void again(GraphBackward& back) const {
    const Tensor& dw = back.grad();
    if (back.needs(0)) back.add(0, convolve(back.input(1, 1), dw, geometry, back.input_shape(0)));
    if (back.needs(1))
      back.add(1, convolve_transposed(back.input(0, 0), dw, geometry, back.input_shape(1)));
  }
};

Tensor weight_product(const Tensor& dy_given, const Tensor& x_given, const ConvGeometry& geometry,
                      const Shape& shape) {
  const Tensor dy = channels_last(dy_given), x = channels_last(x_given);
  const Tensor dw = empty(shape, dy.dtype(), dy.device());
  conv_weight_gradient(seen(dy), seen(x), geometry, written(dw), 0, stream_of(dw));
  return record("conv_weight_gradient", dw, {&dy, &x}, {Saved::input(0), Saved::input(1)},
                WeightProductBackward{geometry});
}

Tensor convolve_transposed(const char* op, const Tensor& input, const Tensor& weight,
                           const Tensor& bias, const ConvGeometry& geometry, const Shape& shape) {
  const Tensor dense = channels_last(input);
  const Autocasted in(Policy::lower, dense, weight, bias);
  const Tensor &x = in[0], &w = in[1], &b = in[2];
  const double work = static_cast<double>(x.numel()) *
                      static_cast<double>(w.numel() / std::max<std::int64_t>(1, w.size(0)));
  Tensor y = autograd::product(work, autograd::ReadsResult::no, [&] {
    const Tensor made = empty(shape, x.dtype(), x.device(), MemoryFormat::channels_last);
    // Start the sum with the bias, so that the result is rounded once.
    if (b.defined())
      kernels::copy(broadcast_to(by_channel(b.view(), shape.size()), shape), made.mutable_view(),
                    stream_of(made));
    conv_data_gradient(seen(x), seen(w), geometry, written(made), b.defined() ? 1 : 0,
                       stream_of(made));
    return made;
  });
  y = record(op, y, {&x, &w, &b}, {}, TransposedBackward{geometry});
  save_factors(y, x, w);
  return y;
}

/// Works as conv(), for transposed convolutions.
Tensor conv_transpose(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const ConvTranspose3dOptions& o, int spatial) {
  check_numbers(op, {o.stride, o.dilation, o.groups}, o.padding, spatial);
  check_operands(op, x, weight, spatial);
  const std::int64_t k = x.size(-1 - spatial);
  FIRN_CHECK(weight.size(0) == k, op, channels_hint(x, weight.size(0), spatial),
             "x {} has {} channels, weight {} takes {}", describe(x), k, describe(weight),
             weight.size(0));
  FIRN_CHECK(k % o.groups == 0, op, "every group takes as many channels",
             "{} channels cannot be cut into {} groups: x {}", k, o.groups, describe(x));
  const std::int64_t channels = checked_product(op, weight.size(1), o.groups);
  check_bias(op, x, bias, weight, channels);

  ConvGeometry g;
  g.groups = o.groups;
  const bool batched = x.rank() == spatial + 2;
  Shape shape{batched ? x.size(0) : 1, channels};
  for (int i = 3 - spatial; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const char* const axis = axis_name(i, spatial);
    g.stride[at] = along(o.stride, i);
    g.dilation[at] = along(o.dilation, i);
    const std::int64_t more = along(o.output_padding, i), padding = along(o.padding, i);
    const std::int64_t size = x.size(i - 3), taps = weight.size(i - 3);
    check_output_padding(op, axis, more, g.stride[at], g.dilation[at]);
    g.before[at] = padding;
    // If there are fewer additional rows than the stride, the convolution ignores them; otherwise
    // they reduce its padding.
    g.after[at] = padding - (more < g.stride[at] ? 0 : more);
    const std::int64_t inside = checked_product(op, size - 1, g.stride[at]);
    const std::int64_t reach = checked_product(op, g.dilation[at], taps - 1);
    const std::int64_t covered = checked_sum(op, checked_sum(op, inside, reach), more + 1);
    const std::int64_t result = covered - 2 * padding;
    FIRN_CHECK(size > 0, op, "there is nothing to convolve", "the {} of x {} is 0", axis,
               describe(x));
    FIRN_CHECK(result > 0, op, "pad less",
               "the result's {} would be {}: {} of input, padding {}, {} taps; x {}, weight {}",
               axis, result, size, padding, taps, describe(x), describe(weight));
    check_positions(op, axis, covered);
    drop_idle(g, at, result + g.before[at] + g.after[at] - reach, taps);
    shape.push_back(result);
  }
  checked_elements(op, shape);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"stride", last(o.stride, spatial)},
                              {"padding", last(o.padding, spatial)},
                              {"output_padding", last(o.output_padding, spatial)},
                              {"dilation", last(o.dilation, spatial)},
                              {"groups", o.groups}});
  if (batched) return convolve_transposed(op, x, weight, bias, g, shape);
  return squeeze(convolve_transposed(op, unsqueeze(x, 0), weight, bias, g, shape), 0);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) try {
  Conv3dOptions o{.stride = {1, 1, options.stride},
                  .dilation = {1, 1, options.dilation},
                  .groups = options.groups,
                  .activation = options.activation};
  o.padding.around = lifted(options.padding.around, 0);
  o.padding.same = options.padding.same;
  return conv("conv1d", x, weight, bias, o, 1);
}
FIRN_OUT_OF_MEMORY("conv1d")

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) try {
  Conv3dOptions o{.stride = lifted(options.stride, 1),
                  .dilation = lifted(options.dilation, 1),
                  .groups = options.groups,
                  .activation = options.activation};
  o.padding.around = lifted(options.padding.around, 0);
  o.padding.same = options.padding.same;
  return conv("conv2d", x, weight, bias, o, 2);
}
FIRN_OUT_OF_MEMORY("conv2d")

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv3dOptions& options) try {
  return conv("conv3d", x, weight, bias, options, 3);
}
FIRN_OUT_OF_MEMORY("conv3d")

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& o) try {
  return conv_transpose("conv_transpose1d", x, weight, bias,
                        {.stride = {1, 1, o.stride},
                         .padding = {0, 0, o.padding},
                         .output_padding = {0, 0, o.output_padding},
                         .dilation = {1, 1, o.dilation},
                         .groups = o.groups},
                        1);
}
FIRN_OUT_OF_MEMORY("conv_transpose1d")

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) try {
  return conv_transpose("conv_transpose2d", x, weight, bias,
                        {.stride = lifted(o.stride, 1),
                         .padding = lifted(o.padding, 0),
                         .output_padding = lifted(o.output_padding, 0),
                         .dilation = lifted(o.dilation, 1),
                         .groups = o.groups},
                        2);
}
FIRN_OUT_OF_MEMORY("conv_transpose2d")

Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& o) try {
  return conv_transpose("conv_transpose3d", x, weight, bias, o, 3);
}
FIRN_OUT_OF_MEMORY("conv_transpose3d")

void allow_nondeterministic(bool on) noexcept {
  ops::set_switch(kernels::nondeterministic_switch(), on);
}
bool nondeterministic_allowed() noexcept {
  return kernels::nondeterministic_switch().load(std::memory_order_relaxed);
}

}  // namespace firn
