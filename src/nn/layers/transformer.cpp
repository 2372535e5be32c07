// TransformerEncoderLayer, TransformerDecoderLayer, and stacks of them.
#include "firn/nn/layers/transformer.h"

#include "base/check.h"

namespace firn::nn {
namespace {

MultiHeadAttentionOptions attention_of(const TransformerLayerOptions& o, std::int64_t memory) {
  return {.memory_width = memory,
          .bias = o.bias,
          .causal = memory == 0 && o.causal,
          .dropout = o.dropout,
          .dtype = o.dtype,
          .device = o.device};
}

Linear linear_of(const char* layer, std::int64_t in, std::int64_t out,
                 const TransformerLayerOptions& o) {
  FIRN_CHECK(o.hidden > 0, layer, "4 times the width is usual", "hidden = {} must be positive",
             o.hidden);
  FIRN_CHECK(o.activation, layer, "relu or gelu", "the activation is a null pointer");
  return {in, out, {.bias = o.bias, .dtype = o.dtype, .device = o.device}};
}

LayerNorm norm_of(std::int64_t width, const TransformerLayerOptions& o) {
  return LayerNorm(width, {.eps = o.eps, .bias = o.bias, .dtype = o.dtype, .device = o.device});
}

/// Adds the result of `block` to x, with the norm before or after.
template <class Block>
Tensor added(const Tensor& x, bool norm_first, LayerNorm& norm, Dropout& dropout,
             const Block& block) {
  if (norm_first) return x + dropout(block(norm(x)));
  return norm(x + dropout(block(x)));
}

/// The feed-forward block of either layer.
template <class Layer>
Tensor fed_forward(Layer& layer, const TransformerLayerOptions& o, const Tensor& x) {
  return layer.linear2(layer.dropout(o.activation(layer.linear1(x))));
}

/// Text that distinguishes a layer, beside the text of its parts.
std::string text_of(const TransformerLayerOptions& o) {
  const char* activation =
      o.activation == static_cast<Tensor (*)(const Tensor&)>(relu)        ? "relu"
      : o.activation == static_cast<Tensor (*)(const Tensor&)>(gelu)      ? "gelu"
      : o.activation == static_cast<Tensor (*)(const Tensor&)>(gelu_tanh) ? "gelu_tanh"
      : o.activation == static_cast<Tensor (*)(const Tensor&)>(silu)      ? "silu"
                                                                          : "a function";
  return fmt::format("activation = {}{}", activation, o.norm_first ? ", norm_first = true" : "");
}

template <class Layer>
std::vector<Layer> clones(const char* stack, const Layer& layer, std::int64_t count) {
  FIRN_CHECK(count > 0, stack, "give the number of layers", "count = {} must be positive", count);
  std::vector<Layer> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(nn::clone(layer));
  return all;
}

}  // namespace

FIRN_DEFINE_MEMBERS(TransformerEncoderLayer, self_attn, linear1, dropout, linear2, norm1, norm2,
                    dropout1, dropout2)
FIRN_DEFINE_MEMBERS(TransformerDecoderLayer, self_attn, multihead_attn, linear1, dropout, linear2,
                    norm1, norm2, norm3, dropout1, dropout2, dropout3)
FIRN_DEFINE_MEMBERS(TransformerEncoder, layers, norm)
FIRN_DEFINE_MEMBERS(TransformerDecoder, layers, norm)

// ---- Encoder ----

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t width, std::int64_t heads,
                                                 const TransformerLayerOptions& options)
    : self_attn(width, heads, attention_of(options, 0)),
      linear1(linear_of("TransformerEncoderLayer", width, options.hidden, options)),
      dropout(options.dropout),
      linear2(linear_of("TransformerEncoderLayer", options.hidden, width, options)),
      norm1(norm_of(width, options)),
      norm2(norm_of(width, options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      options_(options) {}

Tensor TransformerEncoderLayer::forward(const Tensor& x) { return forward(x, SeenKeys{}); }

Tensor TransformerEncoderLayer::forward(const Tensor& x, const SeenKeys& seen) {
  const Tensor y = added(x, options_.norm_first, norm1, dropout1,
                         [&](const Tensor& t) { return self_attn(t, seen); });
  return added(y, options_.norm_first, norm2, dropout2,
               [&](const Tensor& t) { return fed_forward(*this, options_, t); });
}

std::string TransformerEncoderLayer::extra_repr() const { return text_of(options_); }

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t count,
                                       AnyModule last)
    : layers(clones("TransformerEncoder", layer, count)), norm(std::move(last)) {}

Tensor TransformerEncoder::forward(const Tensor& x) { return forward(x, SeenKeys{}); }

Tensor TransformerEncoder::forward(const Tensor& x, const SeenKeys& seen) {
  Tensor y = x;
  for (TransformerEncoderLayer& layer : layers) y = layer(y, seen);
  return norm ? (*norm)(y) : y;
}

// ---- Decoder ----

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t width, std::int64_t heads,
                                                 const TransformerLayerOptions& options)
    : self_attn(width, heads, attention_of(options, 0)),
      multihead_attn(width, heads, attention_of(options, width)),
      linear1(linear_of("TransformerDecoderLayer", width, options.hidden, options)),
      dropout(options.dropout),
      linear2(linear_of("TransformerDecoderLayer", options.hidden, width, options)),
      norm1(norm_of(width, options)),
      norm2(norm_of(width, options)),
      norm3(norm_of(width, options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      dropout3(options.dropout),
      options_(options) {}

Tensor TransformerDecoderLayer::forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen,
                                        const SeenKeys& seen_memory) {
  const bool first = options_.norm_first;
  Tensor y = added(x, first, norm1, dropout1, [&](const Tensor& t) { return self_attn(t, seen); });
  y = added(y, first, norm2, dropout2,
            [&](const Tensor& t) { return multihead_attn(t, memory, seen_memory); });
  return added(y, first, norm3, dropout3,
               [&](const Tensor& t) { return fed_forward(*this, options_, t); });
}

std::string TransformerDecoderLayer::extra_repr() const { return text_of(options_); }

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t count,
                                       AnyModule last)
    : layers(clones("TransformerDecoder", layer, count)), norm(std::move(last)) {}

Tensor TransformerDecoder::forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen,
                                   const SeenKeys& seen_memory) {
  Tensor y = x;
  for (TransformerDecoderLayer& layer : layers) y = layer(y, memory, seen, seen_memory);
  return norm ? (*norm)(y) : y;
}

std::string name_from_torch(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::string own = dot == std::string::npos ? name : name.substr(dot + 1);
  const std::string before = name.substr(0, name.size() - own.size());
  if (own == "in_proj_weight") return before + "qkv.weight";
  if (own == "in_proj_bias") return before + "qkv.bias";
  const std::string part = "out_proj.";
  const bool projection =
      before.ends_with(part) && (before == part || before.ends_with("." + part));
  return projection ? before.substr(0, before.size() - part.size()) + "out." + own : name;
}

}  // namespace firn::nn
