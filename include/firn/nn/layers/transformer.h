// Layers of transformers (Vaswani et al. 2017) and stacks of them, with PyTorch's structure,
// defaults and names. Sequences are [batch, n, width].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/nn/any_module.h"
#include "firn/nn/layers/attention.h"
#include "firn/nn/layers/dropout.h"
#include "firn/nn/layers/norm.h"
#include "firn/ops/ops.h"

namespace firn::nn {

struct TransformerLayerOptions {
  std::int64_t hidden = 2048;  ///< width inside of the feed-forward block
  double dropout = 0.1;        ///< for probabilities, hidden layer, and each block's result
  Tensor (*activation)(const Tensor&) = relu;  ///< activation of the hidden layer, such as gelu
  double eps = 1e-5;                           ///< epsilon of the norms
  bool norm_first = false;  ///< true: a block normalises its input; false: its sum with the input
  bool bias = true;         ///< projections and norms have a bias
  bool causal = false;      ///< in self-attention no position sees a later one
  DType dtype = f32;
  Device device = default_device();
};

/// Self-attention, then a feed-forward block, each added to its input: x [batch, n, width] -> the
/// same shape.
///
///   nn::TransformerEncoderLayer layer(512, 8, {.activation = gelu, .norm_first = true});
///   y = layer(x, nn::SeenKeys{.lengths = lengths});
class TransformerEncoderLayer : public ModuleOf<TransformerEncoderLayer> {
 public:
  /// Throws Error unless the sizes are positive and heads divides width.
  TransformerEncoderLayer(std::int64_t width, std::int64_t heads,
                          const TransformerLayerOptions& options = {});

  Tensor forward(const Tensor& x) override;
  /// `seen` limits the positions that attention reads.
  Tensor forward(const Tensor& x, const SeenKeys& seen);
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  MultiHeadAttention self_attn;  ///< attention of x to itself
  Linear linear1;                ///< width -> hidden
  Dropout dropout;               ///< after the activation
  Linear linear2;                ///< hidden -> width
  LayerNorm norm1, norm2;        ///< norms of attention and of the feed-forward block
  Dropout dropout1, dropout2;    ///< dropouts of their results

 private:
  TransformerLayerOptions options_;
};

/// Self-attention, attention to a memory, then a feed-forward block, each added to its input: x
/// [batch, n, width] and memory [batch, m, width] -> the shape of x. A decoder that predicts the
/// next token sets `causal`, as PyTorch's takes a mask.
class TransformerDecoderLayer : public ModuleOf<TransformerDecoderLayer> {
 public:
  /// Throws Error unless the sizes are positive and heads divides width.
  TransformerDecoderLayer(std::int64_t width, std::int64_t heads,
                          const TransformerLayerOptions& options = {});

  /// `seen` limits the positions of x that are seen, and `seen_memory` those of the memory.
  Tensor forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen = {},
                 const SeenKeys& seen_memory = {});
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  MultiHeadAttention self_attn;          ///< attention of x to itself
  MultiHeadAttention multihead_attn;     ///< attention of x to the memory
  Linear linear1;                        ///< width -> hidden
  Dropout dropout;                       ///< after the activation
  Linear linear2;                        ///< hidden -> width
  LayerNorm norm1, norm2, norm3;         ///< norms of both attentions and of the feed-forward block
  Dropout dropout1, dropout2, dropout3;  ///< dropouts of their results

 private:
  TransformerLayerOptions options_;
};

/// A stack of encoder layers, and a norm behind it if one is given.
///
///   nn::TransformerEncoder encoder(nn::TransformerEncoderLayer(512, 8), 6, nn::LayerNorm(512));
class TransformerEncoder : public ModuleOf<TransformerEncoder> {
 public:
  /// Stacks `count` clones of `layer`, which start with the same values, as in PyTorch. Throws
  /// Error unless count > 0.
  TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t count,
                     AnyModule norm = nullptr);

  Tensor forward(const Tensor& x) override;
  Tensor forward(const Tensor& x, const SeenKeys& seen);
  FIRN_DECLARE_MEMBERS()

  std::vector<TransformerEncoderLayer> layers;  ///< in the order of the call
  AnyModule norm;                               ///< may be null
};

/// A stack of decoder layers, which see one memory, and a norm behind it if one is given.
class TransformerDecoder : public ModuleOf<TransformerDecoder> {
 public:
  /// Stacks clones as TransformerEncoder does.
  TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t count,
                     AnyModule norm = nullptr);

  /// Takes the arguments of a layer's forward().
  Tensor forward(const Tensor& x, const Tensor& memory, const SeenKeys& seen = {},
                 const SeenKeys& seen_memory = {});
  FIRN_DECLARE_MEMBERS()

  std::vector<TransformerDecoderLayer> layers;  ///< in the order of the call
  AnyModule norm;                               ///< may be null
};

/// Returns firn's name of a parameter of PyTorch's MultiheadAttention, alone or inside of other
/// modules: "layers.0.self_attn.in_proj_weight" is "layers.0.self_attn.qkv.weight". Other names
/// stay.
///
///   io::load_safetensors(path, encoder, {.rename = nn::name_from_torch});
///
/// Attention to a memory has two projections, so cut `in_proj_weight` and `in_proj_bias` before:
/// their first third is q, the rest is kv.
std::string name_from_torch(const std::string& name);

}  // namespace firn::nn
