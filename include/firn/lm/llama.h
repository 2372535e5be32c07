// Llama and models of its kind: Llama 2 and 3, SmolLM2, Mistral, Qwen2.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firn/lm/config.h"
#include "firn/lm/sequences.h"
#include "firn/nn/layers/embedding.h"
#include "firn/nn/layers/linear.h"
#include "firn/nn/layers/norm.h"
#include "firn/nn/module_of.h"
#include "firn/ops/attention.h"

namespace firn::lm {

/// Attention with rotary positions, heads of keys that several heads of queries share, and perhaps
/// a sliding window.
class LlamaAttention : public nn::ModuleOf<LlamaAttention> {
 public:
  LlamaAttention(const LlamaConfig& config, std::int64_t layer, const ModelOptions& options);

  /// x [n, t, hidden_size] -> the same shape. `rotary` turns queries and keys.
  Tensor forward(const Tensor& x, const RopeOptions& rotary, const nn::SeenKeys& seen);
  FIRN_DECLARE_MEMBERS()

  nn::Linear q_proj, k_proj, v_proj;  ///< projections to queries, keys and values
  nn::Linear o_proj;                  ///< projection of all heads

 private:
  std::int64_t head_dim_;
  std::optional<std::int64_t> window_;
  double scale_, dropout_;
};

/// down_proj(silu(gate_proj(x)) up_proj(x)) (Shazeer 2020).
class LlamaMlp : public nn::Module {
 public:
  LlamaMlp(const LlamaConfig& config, const ModelOptions& options);

  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()

  nn::Linear gate_proj, up_proj, down_proj;  ///< projections to intermediate_size, and back
};

/// A block: attention, then a feed-forward part, each of normalised values and added to its input.
class LlamaBlock : public nn::ModuleOf<LlamaBlock> {
 public:
  LlamaBlock(const LlamaConfig& config, std::int64_t layer, const ModelOptions& options);

  /// Takes the arguments of LlamaAttention::forward().
  Tensor forward(const Tensor& x, const RopeOptions& rotary, const nn::SeenKeys& seen);
  FIRN_DECLARE_MEMBERS()

  LlamaAttention self_attn;                               ///< attention
  LlamaMlp mlp;                                           ///< the feed-forward part
  nn::RMSNorm input_layernorm, post_attention_layernorm;  ///< norms of both parts' inputs
};

/// The model without its output layer.
class LlamaBody : public nn::ModuleOf<LlamaBody> {
 public:
  LlamaBody(const LlamaConfig& config, const ModelOptions& options);

  /// ids [n, t] -> [n, t, hidden_size].
  Tensor forward(const Tensor& ids) override;
  Tensor forward(const Tensor& ids, const Sequences& sequences);
  FIRN_DECLARE_MEMBERS()

  nn::Embedding embed_tokens;      ///< table of tokens
  std::vector<LlamaBlock> layers;  ///< in the order of the call
  nn::RMSNorm norm;                ///< norm of the result
  nn::Buffer inv_freq;             ///< f64 [head_dim / 2]; undefined without a scaling of positions

 private:
  double theta_;
};

/// Predicts the token that follows each token of a text. Parameters have the names of Hugging
/// Face's safetensors files, and load() of load.h reads these.
///
///   lm::Llama model(lm::LlamaConfig::from_file(folder));
///   lm::load(folder, model);
///   const Tensor logits = model(ids);                       // [n, t, vocab_size]
///   opt.backward(model.loss(ids, lm::next_ids(ids)));
///   nn::checkpoint_blocks(model);                           // see nn/checkpoint.h
class Llama : public nn::ModuleOf<Llama> {
 public:
  /// Draws the weights from the normal distribution with initializer_range; biases are 0. Throws
  /// what LlamaConfig::check() throws.
  explicit Llama(const LlamaConfig& config, const ModelOptions& options = {});

  /// ids [n, t], i64 or i32, in [0, vocab_size) -> logits [n, t, vocab_size]. t may be more than
  /// max_position_embeddings. Positions and masks of a batch: model(ids, lm::Sequences{...}).
  Tensor forward(const Tensor& ids) override;
  Tensor forward(const Tensor& ids, const Sequences& sequences);
  /// Computes loss().
  Loss forward(const LossInput& input);
  /// cross_entropy() of the logits and the targets [n, t], which never holds all logits: see
  /// linear_cross_entropy(). next_ids() makes the targets of a text.
  Loss loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options = {},
            const Sequences& sequences = {});

  const LlamaConfig& config() const noexcept { return config_; }  ///< the config of the constructor
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  LlamaBody model;     ///< all but the output layer
  nn::Linear lm_head;  ///< hidden_size -> vocab_size; its weight may be that of embed_tokens

 private:
  LlamaConfig config_;
};

}  // namespace firn::lm
