// Layers of transformers: multi-head attention, and the gated feed-forward block.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/nn/layers/linear.h"
#include "firn/nn/module_of.h"

namespace firn::nn {

struct MultiHeadAttentionOptions {
  std::int64_t key_heads = 0;     ///< heads of keys and values; 0: the number of query heads
  std::int64_t head_width = 0;    ///< 0: width / heads
  std::int64_t memory_width = 0;  ///< width of the attended sequence; 0: x attends to itself
  bool bias = true;               ///< the four projections have a bias
  bool causal = false;            ///< a query sees no later key
  std::optional<std::int64_t> window = {};  ///< see AttentionOptions
  double dropout = 0;                       ///< dropout of the probabilities, in training mode
  std::optional<double> rope_theta = {};    ///< if set, rotary positions with this theta
  bool rope_interleaved = false;            ///< see RopeOptions::interleaved
  DType dtype = f32;
  Device device = default_device();
};

/// Limits the keys of a call to valid ones, and adds a bias to their scores.
struct SeenKeys {
  Tensor lengths = {};  ///< see AttentionOptions::lengths
  Tensor mask = {};     ///< see AttentionOptions::mask
  Tensor bias = {};     ///< see AttentionOptions::bias
};

/// Projections of queries, keys and values, attention(), and a projection of the heads: x [batch,
/// n, width] -> [batch, n, width] (Vaswani et al. 2017). Self-attention has one projection `qkv`,
/// of queries, keys and values in this order, head by head; attention to a memory [batch, m,
/// memory_width] has `q` and `kv`.
///
///   nn::MultiHeadAttention self(256, 4, {.causal = true, .rope_theta = 10000.0});
///   y = self(x);
///   nn::MultiHeadAttention cross(256, 4, {.memory_width = 512});
///   y = cross(x, memory, nn::SeenKeys{.lengths = lengths});
class MultiHeadAttention : public ModuleOf<MultiHeadAttention> {
 public:
  /// Throws Error unless the sizes are positive and fit together.
  MultiHeadAttention(std::int64_t width, std::int64_t heads,
                     const MultiHeadAttentionOptions& options = {});

  /// Without a memory, computes self-attention, and throws Error if the layer was made for a
  /// memory. With a memory, throws Error if it was not.
  Tensor forward(const Tensor& x) override;
  Tensor forward(const Tensor& x, const SeenKeys& seen);
  Tensor forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen = {});
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  std::optional<Linear> qkv;  ///< self-attention: width -> (heads + 2 key_heads) head_width
  std::optional<Linear> q;    ///< with a memory: width -> heads head_width
  std::optional<Linear> kv;   ///< with a memory: memory_width -> 2 key_heads head_width
  Linear out;                 ///< heads head_width -> width

 private:
  Tensor attend(const Tensor& queries, const Tensor& keys, const Tensor& values,
                const SeenKeys& seen);

  std::int64_t heads_;
  MultiHeadAttentionOptions options_;
};

struct SwiGLUOptions {
  bool bias = false;  ///< the three projections have a bias
  DType dtype = f32;
  Device device = default_device();
};

/// down(silu(gate(x)) up(x)): x [..., width] -> [..., width] through `hidden` units (Shazeer 2020).
class SwiGLU : public Module {
 public:
  /// Throws Error unless both sizes are positive.
  SwiGLU(std::int64_t width, std::int64_t hidden, const SwiGLUOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Linear gate, up, down;  ///< projections to the hidden width, and back
};

}  // namespace firn::nn
