// GPT-2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/lm/config.h"
#include "firn/lm/sequences.h"
#include "firn/nn/layers/dropout.h"
#include "firn/nn/layers/embedding.h"
#include "firn/nn/layers/linear.h"
#include "firn/nn/layers/norm.h"
#include "firn/nn/module_of.h"

namespace firn::lm {

/// Attention whose queries, keys and values are one projection.
class Gpt2Attention : public nn::ModuleOf<Gpt2Attention> {
 public:
  Gpt2Attention(const Gpt2Config& config, std::int64_t layer, const ModelOptions& options);

  /// x [n, t, n_embd] -> the same shape.
  Tensor forward(const Tensor& x, const nn::SeenKeys& seen);
  FIRN_DECLARE_MEMBERS()

  nn::Linear c_attn;          ///< projection to queries, keys and values, in this order
  nn::Linear c_proj;          ///< projection of all heads
  nn::Dropout resid_dropout;  ///< dropout of the result

 private:
  std::int64_t head_dim_;
  double scale_, dropout_;
};

/// c_proj(activation(c_fc(x))).
class Gpt2Mlp : public nn::Module {
 public:
  Gpt2Mlp(const Gpt2Config& config, const ModelOptions& options);

  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()

  nn::Linear c_fc, c_proj;  ///< projections to n_inner, and back
  nn::Dropout dropout;      ///< dropout of the result

 private:
  std::string activation_;
};

/// A block: attention, then a feed-forward part, each of normalised values and added to its input.
class Gpt2Block : public nn::ModuleOf<Gpt2Block> {
 public:
  Gpt2Block(const Gpt2Config& config, std::int64_t layer, const ModelOptions& options);

  /// Takes the arguments of Gpt2Attention::forward().
  Tensor forward(const Tensor& x, const nn::SeenKeys& seen);
  FIRN_DECLARE_MEMBERS()

  nn::LayerNorm ln_1;  ///< norm of attention's input
  Gpt2Attention attn;  ///< attention
  nn::LayerNorm ln_2;  ///< norm of the feed-forward part's input
  Gpt2Mlp mlp;         ///< the feed-forward part
};

/// The model without its output layer.
class Gpt2Body : public nn::ModuleOf<Gpt2Body> {
 public:
  Gpt2Body(const Gpt2Config& config, const ModelOptions& options);

  /// ids [n, t] -> [n, t, n_embd]. Throws Error if t is more than n_positions.
  Tensor forward(const Tensor& ids) override;
  Tensor forward(const Tensor& ids, const Sequences& sequences);
  FIRN_DECLARE_MEMBERS()

  nn::Embedding wte, wpe;    ///< tables of tokens and of positions
  nn::Dropout drop;          ///< dropout of their sum
  std::vector<Gpt2Block> h;  ///< in the order of the call
  nn::LayerNorm ln_f;        ///< norm of the result
};

/// Predicts the token that follows each token of a text (Radford et al. 2019). Parameters have the
/// names of Hugging Face's safetensors files, and load() of load.h reads these.
///
///   lm::Gpt2 model(lm::Gpt2Config::from_file("gpt2"));
///   lm::load("gpt2", model);
///   const Tensor logits = model(ids);                       // [n, t, vocab_size]
///   opt.backward(model.loss(ids, lm::next_ids(ids)));
class Gpt2 : public nn::ModuleOf<Gpt2> {
 public:
  /// Draws the weights from the normal distribution with initializer_range; those of the two
  /// projections that a block adds are divided by sqrt(2 n_layer), and biases are 0. Throws what
  /// Gpt2Config::check() throws.
  explicit Gpt2(const Gpt2Config& config, const ModelOptions& options = {});

  /// ids [n, t], i64 or i32, in [0, vocab_size) -> logits [n, t, vocab_size].
  Tensor forward(const Tensor& ids) override;
  Tensor forward(const Tensor& ids, const Sequences& sequences);
  /// Computes loss().
  Loss forward(const LossInput& input);
  /// cross_entropy() of the logits and the targets [n, t], which never holds all logits: see
  /// linear_cross_entropy(). next_ids() makes the targets of a text.
  Loss loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options = {},
            const Sequences& sequences = {});

  const Gpt2Config& config() const noexcept { return config_; }  ///< the config of the constructor
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Gpt2Body transformer;  ///< all but the output layer
  nn::Linear lm_head;    ///< n_embd -> vocab_size; its weight may be that of wte

 private:
  Gpt2Config config_;
};

}  // namespace firn::lm
