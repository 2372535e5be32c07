// Attention, rotary positions, gated units and recurrent networks, and the layers made of them.
#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

/// Mostly a few; at times none, and at times more than a block of a kernel holds.
std::int64_t count(Draw& d, std::int64_t most) {
  if (d.chance(4)) return 0;
  return 1 + d.below(d.chance(8) ? most : 6);
}

/// Mostly of that shape: a view with two axes swapped is swapped back.
Tensor fitting(Draw& d, const Shape& shape, DType dtype) {
  const Tensor t = d.of(shape, dtype);
  if (t.shape() == shape || !d.chance(95)) return t;
  for (int i = 0; i < t.rank(); ++i)
    for (int j = i + 1; j < t.rank(); ++j) {
      const Tensor back = transpose(t, i, j);
      if (back.shape() == shape) return back;
    }
  return t;
}

/// [batch, heads, n, width], in memory as well or as [batch, n, heads, width], or a view of another
/// kind.
Tensor heads_of(Draw& d, std::int64_t batch, std::int64_t heads, std::int64_t n, std::int64_t width,
                DType dtype) {
  const auto kind = d.below(20);
  if (kind < 9) return fitting(d, {batch, heads, n, width}, dtype);
  if (kind < 19) {
    d.say(" transposed");
    const Tensor t = fitting(d, {batch, n, heads, width}, dtype);
    return t.rank() == 4 ? transpose(t, 1, 2) : t;
  }
  Shape shape = {batch, heads, n, width};
  const int axis = static_cast<int>(d.below(3));
  shape[axis] = 1;
  const Tensor t = fitting(d, shape, dtype);
  if (t.shape() != shape) return t;
  shape[axis] = d.number("repeated", 1, 3);
  // So many rows take long; more of them are refused.
  if (axis == 2 && shape[axis] > 512 && shape[axis] < std::int64_t{1} << 31) shape[axis] = 512;
  return expand(t, shape);
}

AttentionOptions attention_options(Draw& d, const Tensor& q, const Tensor& k) {
  AttentionOptions options{.causal = d.flag("causal")};
  const auto size = [](const Tensor& t, int axis) {
    return axis < t.rank() && t.size(axis) < 4096 ? t.size(axis) : 1;
  };
  if (d.chance(25)) options.window = d.number("window", 1, 9);
  if (d.chance(30)) options.lengths = d.index({size(q, 0)}, size(k, 2) + 1);
  if (d.chance(30)) {
    Shape shape = {size(q, 0), size(q, 1), size(q, 2), size(k, 2)};
    for (auto& n : shape)
      if (d.chance(40)) n = 1;
    while (!shape.empty() && d.chance(20)) shape.erase(0);
    options.mask = fitting(d, shape, boolean);
  }
  if (d.chance(30)) {
    Shape shape = {size(q, 0), size(q, 1), size(q, 2), size(k, 2)};
    for (auto& n : shape)
      if (d.chance(40)) n = 1;
    while (!shape.empty() && d.chance(20)) shape.erase(0);
    options.bias = fitting(d, shape, d.chance(50) ? q.dtype() : f32);
  }
  if (d.chance(30)) options.scale = d.chance(50) ? 0.3 : d.real("scale");
  if (d.chance(25)) options.dropout = d.chance(80) ? 0.25 : d.real("dropout");
  return options;
}

Results attended(Draw& d) {
  const DType dtype = d.one_of({f32, f32, f64, f16, bf16});
  const std::int64_t batch = count(d, 3), key_heads = count(d, 3), n = count(d, 140);
  const std::int64_t heads = d.chance(50) ? key_heads : d.chance(95) ? 2 * key_heads : count(d, 4);
  const std::int64_t width = count(d, 70);
  if (d.chance(10)) {
    d.say(" one tensor");
    const Tensor t = heads_of(d, batch, heads, n, width, dtype);
    return {attention(t, t, t, attention_options(d, t, t))};
  }
  const std::int64_t m = d.chance(40) ? n : count(d, 300);
  const Tensor q = heads_of(d, batch, heads, n, width, dtype);
  const Tensor k = heads_of(d, batch, key_heads, m, width, dtype);
  if (d.chance(10)) return {attention(q, k, k, attention_options(d, q, k))};
  const Tensor v = heads_of(d, batch, key_heads, m, d.chance(70) ? width : count(d, 70), dtype);
  return {attention(q, k, v, attention_options(d, q, k))};
}

Results turned(Draw& d) {
  Tensor x;
  if (d.chance(5)) {
    x = d.any();
  } else if (d.chance(20)) {
    const std::int64_t batch = count(d, 3), heads = count(d, 3), n = count(d, 40);
    x = heads_of(d, batch, heads, n, 2 * d.below(5), f32);
  } else {
    Shape shape = d.small_shape(1, d.chance(90) ? 3 : 7);
    if (d.chance(5)) shape.back() = 3;
    if (d.chance(97)) shape.push_back(2 * d.below(d.chance(10) ? 20 : 5));
    x = d.of(shape, d.one_of({f32, f32, f64, f16, bf16}));
  }
  RopeOptions options{.interleaved = d.flag("interleaved")};
  if (d.chance(40)) {
    const std::int64_t n = x.rank() > 1 && is_small(x) ? x.size(-2) : 1;
    const Shape each = x.rank() > 2 && is_small(x) ? Shape{x.size(0), n} : Shape{n};
    options.positions = d.index(d.chance(50) ? Shape{n} : each, 1 << 20);
  }
  if (d.chance(30)) options.offset = d.number("offset", -3, 100);
  if (d.chance(50)) options.theta = d.chance(50) ? 100 : d.real("theta");
  if (d.chance(20) && x.rank() > 0)
    options.frequencies = d.of({d.chance(95) ? x.size(-1) / 2 : 3}, d.chance(95) ? f64 : f32);
  return {rope(x, options)};
}

Results self_attended(Draw& d) {
  const std::int64_t heads = d.number("heads", 1, 4);
  const std::int64_t width = d.chance(90) && heads > 0 && heads < 8 ? heads * (2 + 2 * d.below(3))
                                                                    : d.number("width", 1, 16);
  nn::MultiHeadAttentionOptions options{.key_heads = d.chance(80) ? 0 : d.number("key_heads", 0, 3),
                                        .bias = d.flag("bias"),
                                        .causal = d.flag("causal")};
  if (d.chance(20)) options.head_width = d.number("head_width", 0, 8);
  if (d.chance(30)) options.memory_width = d.number("memory_width", 0, 8);
  if (d.chance(20)) options.window = d.number("window", 1, 9);
  if (d.chance(20)) options.dropout = d.chance(80) ? 0.25 : d.real("dropout");
  if (d.chance(30)) options.rope_theta = d.chance(80) ? 100 : d.real("rope_theta");
  options.rope_interleaved = d.flag("rope_interleaved");
  options.dtype = d.chance(95) ? d.one_of({f32, f64, f16, bf16}) : d.dtype("dtype");
  d.say(" dtype=" + std::string(to_string(options.dtype)));
  nn::MultiHeadAttention layer(width, heads, options);
  if (d.chance(30)) layer.eval();
  const bool large = heads > 64 || width > 4096 || options.head_width > 4096;
  const std::int64_t batch = large ? 1 : count(d, 3), n = large ? 2 : count(d, 70);
  const bool memory = d.chance(4) != (options.memory_width > 0);
  const std::int64_t m = memory ? count(d, 70) : n;
  nn::SeenKeys seen;
  if (d.chance(20)) seen.lengths = d.index({batch}, m + 1);
  if (d.chance(20)) seen.mask = fitting(d, {n, m}, boolean);
  if (d.chance(20)) seen.bias = fitting(d, {n, m}, options.dtype);
  const Tensor x = fitting(d, {batch, n, width}, options.dtype);
  Results all;
  if (memory) {
    const std::int64_t from = options.memory_width > 0 ? options.memory_width : width;
    all.push_back(layer(x, fitting(d, {batch, m, from}, options.dtype), seen));
  } else {
    all.push_back(layer(x, seen));
  }
  layer.extra_repr();
  return all;
}

Results gated(Draw& d) {
  const std::int64_t width = d.number("width", 1, 8), hidden = d.number("hidden", 1, 12);
  const DType dtype = d.chance(95) ? d.one_of({f32, f64, f16, bf16}) : d.dtype("dtype");
  nn::SwiGLU layer(width, hidden, {.bias = d.flag("bias"), .dtype = dtype});
  Shape shape = width > 4096 || hidden > 4096 ? Shape{} : d.small_shape(0, 7);
  shape.push_back(width);
  return {layer(d.of(shape, dtype))};
}

RecurrentCell cell_of(Draw& d) {
  const int which = static_cast<int>(d.below(4));
  d.say(" cell " + std::to_string(which));
  return static_cast<RecurrentCell>(which);
}

Results recurred(Draw& d) {
  const RecurrentCell cell = cell_of(d);
  const DType dtype = d.one_of({f32, f32, f64, f16, bf16});
  const std::int64_t steps = count(d, 20), batch = count(d, 9), n = count(d, 70);
  const std::int64_t rows = gates_of(cell) * n;
  const bool projected = d.chance(25);
  const std::int64_t p = projected ? count(d, 9) : n;
  const RecurrentOptions options{.bias = d.chance(50) ? fitting(d, {rows}, dtype) : Tensor(),
                                 .projection = projected ? fitting(d, {p, n}, dtype) : Tensor(),
                                 .h = d.chance(50) ? fitting(d, {batch, p}, dtype) : Tensor(),
                                 .c = d.chance(cell == RecurrentCell::lstm ? 50 : 5)
                                          ? fitting(d, {batch, n}, dtype)
                                          : Tensor(),
                                 .lengths = d.chance(40) ? d.index({batch}, steps + 1) : Tensor(),
                                 .reverse = d.flag("reverse")};
  const RecurrentResult y = recurrent(cell, fitting(d, {steps, batch, rows}, dtype),
                                      fitting(d, {rows, p}, dtype), options);
  return {y.output, y.h, y.c};
}

Results recurrent_layer(Draw& d) {
  const std::int64_t in = d.number("in", 1, 5), units = d.number("units", 1, 5);
  const nn::RecurrentLayerOptions options{.layers = d.number("layers", 1, 2),
                                          .bias = d.flag("bias"),
                                          .batch_first = d.flag("batch_first"),
                                          .bidirectional = d.flag("bidirectional"),
                                          .dtype = d.one_of({f32, f64, f16, bf16})};
  // So many layers and units fit in memory, and take long.
  if (options.layers > 8 || in > 4096 || units > 4096) return {};
  nn::GRU layer(in, units, options);
  Shape shape = d.small_shape(0, 3);
  shape.push_back(in);
  const RecurrentResult y = layer(d.of(shape, options.dtype), nn::RecurrentInput{});
  return {y.output, y.h};
}

}  // namespace

std::vector<Call> transformer_calls() {
  const Call attention{"attention", attended}, rope{"rope", turned};
  return {attention,
          attention,
          attention,
          attention,
          attention,
          attention,
          rope,
          rope,
          rope,
          {"MultiHeadAttention", self_attended},
          {"MultiHeadAttention", self_attended},
          {"SwiGLU", gated},
          {"recurrent", recurred},
          {"recurrent", recurred},
          {"recurrent", recurred},
          {"GRU", recurrent_layer}};
}

}  // namespace fuzz
