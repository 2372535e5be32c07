// GPT-2 (Radford et al. 2019).
#include "firn/lm/gpt2.h"

#include <cmath>

#include "base/check.h"
#include "firn/nn/init.h"
#include "firn/ops/attention.h"
#include "lm/models/parts.h"

namespace firn::lm {
namespace {

nn::LayerNorm norm_of(const Gpt2Config& c, const ModelOptions& o) {
  return nn::LayerNorm(c.n_embd,
                       {.eps = c.layer_norm_epsilon, .dtype = o.dtype, .device = o.device});
}

std::int64_t inner(const Gpt2Config& c) { return c.n_inner > 0 ? c.n_inner : 4 * c.n_embd; }

const Gpt2Config& checked(const Gpt2Config& c) {
  c.check("Gpt2");
  return c;
}

}  // namespace

FIRN_DEFINE_MEMBERS(Gpt2Attention, c_attn, c_proj, resid_dropout)
FIRN_DEFINE_MEMBERS(Gpt2Mlp, c_fc, c_proj, dropout)
FIRN_DEFINE_MEMBERS(Gpt2Block, ln_1, attn, ln_2, mlp)
FIRN_DEFINE_MEMBERS(Gpt2Body, wte, wpe, drop, h, ln_f)
FIRN_DEFINE_MEMBERS(Gpt2, transformer, lm_head)

// ---- A block ----

Gpt2Attention::Gpt2Attention(const Gpt2Config& c, std::int64_t layer, const ModelOptions& o)
    : c_attn(projection(c.n_embd, 3 * c.n_embd, true, o)),
      c_proj(projection(c.n_embd, c.n_embd, true, o)),
      resid_dropout(c.resid_pdrop),
      head_dim_(c.n_embd / c.n_head),
      scale_((c.scale_attn_weights ? 1 / std::sqrt(double(head_dim_)) : 1) /
             (c.scale_attn_by_inverse_layer_idx ? double(layer + 1) : 1)),
      dropout_(c.attn_pdrop) {}

Tensor Gpt2Attention::forward(const Tensor& x, const nn::SeenKeys& seen) {
  const std::vector<Tensor> qkv = chunk(heads_of(c_attn(x), head_dim_), 3, 1);
  const Tensor y = attention(qkv[0], qkv[1], qkv[2],
                             {.causal = true,
                              .lengths = seen.lengths,
                              .mask = seen.mask,
                              .bias = seen.bias,
                              .scale = scale_,
                              .dropout = training() ? dropout_ : 0});
  return resid_dropout(c_proj(joined_heads(y)));
}

Gpt2Mlp::Gpt2Mlp(const Gpt2Config& c, const ModelOptions& o)
    : c_fc(projection(c.n_embd, inner(c), true, o)),
      c_proj(projection(inner(c), c.n_embd, true, o)),
      dropout(c.resid_pdrop),
      activation_(c.activation_function) {}

Tensor Gpt2Mlp::forward(const Tensor& x) {
  const Tensor h = c_fc(x);
  const Tensor y = activation_ == "gelu_new" ? gelu_tanh(h)
                   : activation_ == "gelu"   ? gelu(h)
                   : activation_ == "relu"   ? relu(h)
                                             : silu(h);
  return dropout(c_proj(y));
}

Gpt2Block::Gpt2Block(const Gpt2Config& c, std::int64_t layer, const ModelOptions& o)
    : ln_1(norm_of(c, o)), attn(c, layer, o), ln_2(norm_of(c, o)), mlp(c, o) {}

Tensor Gpt2Block::forward(const Tensor& x, const nn::SeenKeys& seen) {
  const Tensor y = x + attn(ln_1(x), seen);
  return y + mlp(ln_2(y));
}

// ---- The model ----

Gpt2Body::Gpt2Body(const Gpt2Config& c, const ModelOptions& o)
    : wte(table(c.vocab_size, c.n_embd, o)),
      wpe(table(c.n_positions, c.n_embd, o)),
      drop(c.embd_pdrop),
      ln_f(norm_of(c, o)) {
  for (std::int64_t i = 0; i < c.n_layer; ++i) h.emplace_back(c, i, o);
}

Tensor Gpt2Body::forward(const Tensor& ids) { return forward(ids, {}); }

Tensor Gpt2Body::forward(const Tensor& ids, const Sequences& sequences) {
  check_ids("Gpt2", ids);
  const std::int64_t longest = wpe.weight.size(0);
  FIRN_CHECK(sequences.positions.defined() || ids.size(1) <= longest, "Gpt2",
             "cut the text into shorter ones", "ids {} are longer than n_positions = {}",
             describe(ids), longest);
  const Tensor places =
      sequences.positions.defined() ? sequences.positions : arange(ids.size(1), ids.device());
  Tensor x = drop(wte(ids) + wpe(places));
  for (Gpt2Block& block : h) x = block(x, sequences.seen);
  return ln_f(x);
}

Gpt2::Gpt2(const Gpt2Config& config, const ModelOptions& options) try
    : transformer(checked(config), options),
      lm_head(output_layer(transformer.wte, config.tie_word_embeddings, options)),
      config_(config) {
  if (!options.draw) return;
  draw_weights(*this, config.initializer_range);
  const double added = config.initializer_range / std::sqrt(2 * double(config.n_layer));
  for (Gpt2Block& block : transformer.h)
    for (nn::Linear* layer : {&block.attn.c_proj, &block.mlp.c_proj})
      nn::init::normal_(layer->weight, 0, added);
}
FIRN_OUT_OF_MEMORY("Gpt2")

Tensor Gpt2::forward(const Tensor& ids) { return forward(ids, Sequences{}); }

Tensor Gpt2::forward(const Tensor& ids, const Sequences& sequences) {
  return lm_head(transformer(ids, sequences));
}

Loss Gpt2::forward(const LossInput& in) {
  return linear_cross_entropy(transformer(in.ids, in.sequences), lm_head.weight, in.targets,
                              in.options);
}

Loss Gpt2::loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options,
                const Sequences& sequences) {
  return (*this)(LossInput{ids, targets, options, sequences});
}

std::string Gpt2::extra_repr() const {
  return fmt::format("{} tokens, {} blocks, width {}", config_.vocab_size, config_.n_layer,
                     config_.n_embd);
}

}  // namespace firn::lm
