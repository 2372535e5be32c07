// Llama, Mistral and Qwen2 (Touvron et al. 2023; Jiang et al. 2023; Qwen team 2024).
#include "firn/lm/llama.h"

#include <cmath>

#include "base/check.h"
#include "lm/models/parts.h"
#include "lm/models/rope_scaling.h"

namespace firn::lm {
namespace {

nn::RMSNorm norm_of(const LlamaConfig& c, const ModelOptions& o) {
  return nn::RMSNorm(c.hidden_size, {.eps = c.rms_norm_eps, .dtype = o.dtype, .device = o.device});
}

const LlamaConfig& checked(const LlamaConfig& c) {
  c.check("Llama");
  return c;
}

}  // namespace

FIRN_DEFINE_MEMBERS(LlamaAttention, q_proj, k_proj, v_proj, o_proj)
FIRN_DEFINE_MEMBERS(LlamaMlp, gate_proj, up_proj, down_proj)
FIRN_DEFINE_MEMBERS(LlamaBlock, self_attn, mlp, input_layernorm, post_attention_layernorm)
FIRN_DEFINE_MEMBERS(LlamaBody, embed_tokens, layers, norm, inv_freq)
FIRN_DEFINE_MEMBERS(Llama, model, lm_head)

// ---- A block ----

LlamaAttention::LlamaAttention(const LlamaConfig& c, std::int64_t layer, const ModelOptions& o)
    : q_proj(
          projection(c.hidden_size, c.num_attention_heads * c.head_width(), c.attention_bias, o)),
      k_proj(projection(c.hidden_size, c.key_value_heads() * c.head_width(), c.attention_bias, o)),
      v_proj(projection(c.hidden_size, c.key_value_heads() * c.head_width(), c.attention_bias, o)),
      o_proj(projection(c.num_attention_heads * c.head_width(), c.hidden_size,
                        c.attention_bias && c.model_type != "qwen2", o)),
      head_dim_(c.head_width()),
      window_(c.window(layer)),
      scale_(std::pow(rope_attention_factor(c.rope), 2) / std::sqrt(double(head_dim_))),
      dropout_(c.attention_dropout) {}

Tensor LlamaAttention::forward(const Tensor& x, const RopeOptions& rotary,
                               const nn::SeenKeys& seen) {
  const Tensor q = rope(heads_of(q_proj(x), head_dim_), rotary);
  const Tensor k = rope(heads_of(k_proj(x), head_dim_), rotary);
  const Tensor v = heads_of(v_proj(x), head_dim_);
  const Tensor y = attention(q, k, v,
                             {.causal = true,
                              .window = window_,
                              .lengths = seen.lengths,
                              .mask = seen.mask,
                              .bias = seen.bias,
                              .scale = scale_,
                              .dropout = training() ? dropout_ : 0});
  return o_proj(joined_heads(y));
}

LlamaMlp::LlamaMlp(const LlamaConfig& c, const ModelOptions& o)
    : gate_proj(projection(c.hidden_size, c.intermediate_size, c.mlp_bias, o)),
      up_proj(projection(c.hidden_size, c.intermediate_size, c.mlp_bias, o)),
      down_proj(projection(c.intermediate_size, c.hidden_size, c.mlp_bias, o)) {}

Tensor LlamaMlp::forward(const Tensor& x) { return down_proj(swiglu(gate_proj(x), up_proj(x))); }

LlamaBlock::LlamaBlock(const LlamaConfig& c, std::int64_t layer, const ModelOptions& o)
    : self_attn(c, layer, o),
      mlp(c, o),
      input_layernorm(norm_of(c, o)),
      post_attention_layernorm(norm_of(c, o)) {}

Tensor LlamaBlock::forward(const Tensor& x, const RopeOptions& rotary, const nn::SeenKeys& seen) {
  const Tensor h = x + self_attn(input_layernorm(x), rotary, seen);
  return h + mlp(post_attention_layernorm(h));
}

// ---- The model ----

LlamaBody::LlamaBody(const LlamaConfig& c, const ModelOptions& o)
    : embed_tokens(table(c.vocab_size, c.hidden_size, o)),
      norm(norm_of(c, o)),
      theta_(c.rope.rope_theta) {
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) layers.emplace_back(c, i, o);
  const std::vector<double> frequencies = rope_frequencies(c);
  if (!frequencies.empty())
    inv_freq =
        nn::Buffer(tensor(frequencies, {c.head_width() / 2}, o.device), nn::OnConversion::keep);
}

Tensor LlamaBody::forward(const Tensor& ids) { return forward(ids, {}); }

Tensor LlamaBody::forward(const Tensor& ids, const Sequences& sequences) {
  check_ids("Llama", ids);
  const RopeOptions rotary{
      .positions = sequences.positions, .theta = theta_, .frequencies = inv_freq};
  Tensor x = embed_tokens(ids);
  for (LlamaBlock& block : layers) x = block(x, rotary, sequences.seen);
  return norm(x);
}

Llama::Llama(const LlamaConfig& config, const ModelOptions& options) try
    : model(checked(config), options),
      lm_head(output_layer(model.embed_tokens, config.tie_word_embeddings, options)),
      config_(config) {
  if (options.draw) draw_weights(*this, config.initializer_range);
}
FIRN_OUT_OF_MEMORY("Llama")

Tensor Llama::forward(const Tensor& ids) { return forward(ids, Sequences{}); }

Tensor Llama::forward(const Tensor& ids, const Sequences& sequences) {
  return lm_head(model(ids, sequences));
}

Loss Llama::forward(const LossInput& in) {
  return linear_cross_entropy(model(in.ids, in.sequences), lm_head.weight, in.targets, in.options);
}

Loss Llama::loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options,
                 const Sequences& sequences) {
  return (*this)(LossInput{ids, targets, options, sequences});
}

std::string Llama::extra_repr() const {
  return fmt::format("{}, {} tokens, {} blocks, width {}", config_.model_type, config_.vocab_size,
                     config_.num_hidden_layers, config_.hidden_size);
}

}  // namespace firn::lm
