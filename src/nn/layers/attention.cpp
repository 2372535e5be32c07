// MultiHeadAttention, SwiGLU.
#include "firn/nn/layers/attention.h"

#include <cmath>

#include "base/checked.h"
#include "firn/ops/attention.h"
#include "firn/ops/ops.h"

namespace firn::nn {
namespace {

MultiHeadAttentionOptions filled_in(std::int64_t width, std::int64_t heads,
                                    MultiHeadAttentionOptions o) {
  constexpr const char* kLayer = "MultiHeadAttention";
  FIRN_CHECK(width > 0 && heads > 0, kLayer, "give the width of x and the number of heads",
             "width = {} and heads = {} must be positive", width, heads);
  FIRN_CHECK(o.key_heads >= 0 && o.head_width >= 0 && o.memory_width >= 0, kLayer,
             "0 stands for the default",
             "key_heads = {}, head_width = {} and memory_width = {} are 0 or more", o.key_heads,
             o.head_width, o.memory_width);
  if (o.key_heads == 0) o.key_heads = heads;
  FIRN_CHECK(heads % o.key_heads == 0, kLayer, "each key head serves as many query heads",
             "heads = {} is no multiple of key_heads = {}", heads, o.key_heads);
  FIRN_CHECK(o.head_width > 0 || width % heads == 0, kLayer, "or set head_width",
             "width = {} is no multiple of heads = {}", width, heads);
  if (o.head_width == 0) o.head_width = width / heads;
  FIRN_CHECK(!o.rope_theta || o.head_width % 2 == 0, kLayer,
             "rotary positions turn pairs of elements", "head_width = {} is odd", o.head_width);
  FIRN_CHECK(!o.rope_theta || o.memory_width == 0, kLayer,
             "a memory has positions of its own: call rope() and attention() yourself",
             "rope_theta and memory_width = {} are both set", o.memory_width);
  FIRN_CHECK(!o.rope_theta || (std::isfinite(*o.rope_theta) && *o.rope_theta >= 1), kLayer,
             "10000 is usual", "rope_theta = {} is not a finite number from 1 on", *o.rope_theta);
  FIRN_CHECK(!o.window || *o.window > 0, kLayer,
             "1 sees the query's own place; leave it out to see all", "window = {}", *o.window);
  FIRN_CHECK(is_floating(o.dtype), kLayer, "f32, f16, bf16 or f64", "dtype = {}",
             to_string(o.dtype));
  FIRN_CHECK(o.dropout >= 0 && o.dropout < 1, kLayer, "the share of what becomes zero",
             "dropout = {} is not in [0, 1)", o.dropout);
  return o;
}

/// Returns the projection. Throws unless it is there and has `outputs`: members may be replaced.
Linear& projection(const char* name, std::optional<Linear>& member, std::int64_t outputs) {
  const std::string hint = fmt::format("assign an nn::Linear with {} outputs to it", outputs);
  FIRN_CHECK(member, "MultiHeadAttention", hint, "the projection {} was reset", name);
  const Tensor& w = member->weight;
  FIRN_CHECK(!w.defined() || w.size(0) == outputs, "MultiHeadAttention", hint,
             "the projection {} is nn::Linear({}, {}) and needs {} outputs", name, w.size(1),
             w.size(0), outputs);
  return *member;
}

/// [batch, n, heads * width] as [batch, heads, n, width]; a view.
Tensor split_heads(const Tensor& x, std::int64_t width) {
  return transpose(reshape(x, {x.size(0), x.size(1), x.size(2) / width, width}), 1, 2);
}

}  // namespace

FIRN_DEFINE_MEMBERS(MultiHeadAttention, qkv, q, kv, out)
FIRN_DEFINE_MEMBERS(SwiGLU, gate, up, down)

MultiHeadAttention::MultiHeadAttention(std::int64_t width, std::int64_t heads,
                                       const MultiHeadAttentionOptions& options)
    : out(checked_product("MultiHeadAttention", heads > 0 ? heads : 1,
                          filled_in(width, heads, options).head_width),
          width, {.bias = options.bias, .dtype = options.dtype, .device = options.device}),
      heads_(heads),
      options_(filled_in(width, heads, options)) {
  const LinearOptions linear{
      .bias = options.bias, .dtype = options.dtype, .device = options.device};
  const std::int64_t d = options_.head_width, keys = 2 * options_.key_heads;
  if (options_.memory_width == 0) {
    qkv.emplace(width, (heads_ + keys) * d, linear);
  } else {
    q.emplace(width, heads_ * d, linear);
    kv.emplace(options_.memory_width, keys * d, linear);
  }
}

Tensor MultiHeadAttention::forward(const Tensor& x) { return forward(x, SeenKeys{}); }

Tensor MultiHeadAttention::forward(const Tensor& x, const SeenKeys& seen) {
  FIRN_CHECK(options_.memory_width == 0, "MultiHeadAttention", "call it with x and the memory",
             "a layer with memory_width = {} attends to a memory", options_.memory_width);
  FIRN_CHECK(x.defined() && x.rank() == 3, "MultiHeadAttention", "one sequence: unsqueeze(x, 0)",
             "input {} is not [batch, n, width]", describe(x));
  const std::int64_t keys = options_.key_heads;
  Linear& from_x = projection("qkv", qkv, (heads_ + 2 * keys) * options_.head_width);
  const Tensor all = split_heads(from_x(x), options_.head_width);
  const std::vector<Tensor> parts = split(all, {heads_, keys, keys}, 1);
  if (!options_.rope_theta) return attend(parts[0], parts[1], parts[2], seen);
  const RopeOptions positions{.theta = *options_.rope_theta,
                              .interleaved = options_.rope_interleaved};
  return attend(rope(parts[0], positions), rope(parts[1], positions), parts[2], seen);
}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen) {
  FIRN_CHECK(options_.memory_width > 0, "MultiHeadAttention",
             "set memory_width to the width of the memory",
             "a layer without memory_width attends to its input {}", describe(x));
  FIRN_CHECK(x.defined() && x.rank() == 3 && memory.defined() && memory.rank() == 3,
             "MultiHeadAttention", "one sequence: unsqueeze(x, 0)",
             "input {} and memory {} are not [batch, n, width]", describe(x), describe(memory));
  const std::int64_t d = options_.head_width;
  Linear& from_memory = projection("kv", kv, 2 * options_.key_heads * d);
  Linear& from_x = projection("q", q, heads_ * d);
  const std::vector<Tensor> parts =
      split(split_heads(from_memory(memory), d), options_.key_heads, 1);
  return attend(split_heads(from_x(x), d), parts[0], parts[1], seen);
}

Tensor MultiHeadAttention::attend(const Tensor& queries, const Tensor& keys, const Tensor& values,
                                  const SeenKeys& seen) {
  const Tensor heads = attention(queries, keys, values,
                                 {.causal = options_.causal,
                                  .window = options_.window,
                                  .lengths = seen.lengths,
                                  .mask = seen.mask,
                                  .bias = seen.bias,
                                  .dropout = training() ? options_.dropout : 0});
  return out(reshape(transpose(heads, 1, 2),
                     {heads.size(0), heads.size(2), heads_ * options_.head_width}));
}

std::string MultiHeadAttention::extra_repr() const {
  std::string text = fmt::format("{}, {}", out.weight.size(0), heads_);
  if (options_.key_heads != heads_) text += fmt::format(", key_heads = {}", options_.key_heads);
  if (options_.head_width * heads_ != out.weight.size(0))
    text += fmt::format(", head_width = {}", options_.head_width);
  if (options_.memory_width) text += fmt::format(", memory_width = {}", options_.memory_width);
  if (!out.bias.defined()) text += ", bias = false";
  if (options_.causal) text += ", causal = true";
  if (options_.window) text += fmt::format(", window = {}", *options_.window);
  if (options_.dropout > 0) text += fmt::format(", dropout = {}", options_.dropout);
  if (options_.rope_theta) text += fmt::format(", rope_theta = {}", *options_.rope_theta);
  return text;
}

SwiGLU::SwiGLU(std::int64_t width, std::int64_t hidden, const SwiGLUOptions& options)
    : gate(width, hidden, {.bias = options.bias, .dtype = options.dtype, .device = options.device}),
      up(width, hidden, {.bias = options.bias, .dtype = options.dtype, .device = options.device}),
      down(hidden, width,
           {.bias = options.bias, .dtype = options.dtype, .device = options.device}) {}

Tensor SwiGLU::forward(const Tensor& x) { return down(swiglu(gate(x), up(x))); }
std::string SwiGLU::extra_repr() const {
  return fmt::format("{}, {}{}", gate.weight.size(1), gate.weight.size(0),
                     gate.bias.defined() ? ", bias = true" : "");
}

}  // namespace firn::nn
