// Layers whose weights are sharded over ranks (Shoeybi et al. 2019, Megatron-LM). A column-parallel
// layer computes a part of its outputs. A row-parallel layer takes a part of its inputs, and the
// ranks sum its outputs.
//
//   struct Block : nn::Module {
//     nn::LayerNorm norm1, norm2;
//     dist::ParallelMultiHeadAttention attend;
//     dist::ParallelSwiGLU unit;
//     FIRN_MEMBERS(norm1, norm2, attend, unit)
//     explicit Block(const dist::Group& tp) : ..., attend(tp, 64, 4, {.causal = true}), ... {}
//     Tensor forward(const Tensor& x) override {
//       const Tensor h = x + attend(norm1(x));
//       return h + unit(norm2(h));
//     }
//   };
//
// A layer draws the whole weights, with the random numbers of its counterpart in nn, and keeps its
// shard. So the same seed gives the same model on any number of ranks, and parameters that are not
// sharded are the same on all. The whole weights exist for a moment. With several ranks, sharded
// parameters are marked (dist::mark_sharded), so that distribute(optimizer, mesh) counts all shards
// in the norm. Parameters are on the group's device. One rank with a group on the CPU, such as
// Group(), has them on options.device, or the default device. All constructors throw Error as
// those of nn. They also throw, naming the numbers, if the number of ranks does not divide the
// sharded size. All ranks make and call the layers alike. Inputs are the same on every rank, unless
// a comment says that they are parts.
#pragma once

#include <cstdint>

#include "firn/dist/group.h"
#include "firn/nn/layers/attention.h"
#include "firn/nn/layers/linear.h"
#include "firn/nn/module.h"
#include "firn/nn/module_of.h"

namespace firn::dist {

struct ColumnParallelOptions {
  bool bias = true;            ///< adds a bias, sharded over the ranks
  bool gather_output = false;  ///< y is whole on every rank, in place of this rank's part
  DType dtype = f32;
};

/// nn::Linear(in, out) with sharded outputs: x [..., in] -> y [..., out / ranks], this rank's part.
class ColumnParallelLinear : public nn::Module {
 public:
  ColumnParallelLinear(const Group& group, std::int64_t in, std::int64_t out,
                       const ColumnParallelOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  nn::Parameter weight;  ///< [out / ranks, in]: a shard
  nn::Parameter bias;    ///< [out / ranks]: a shard, or undefined

 private:
  Group group_;
  bool gather_output_;
};

struct RowParallelOptions {
  bool bias = true;               ///< adds a bias, which is whole on every rank
  bool input_is_parallel = true;  ///< x is this rank's part; else it is whole on every rank
  DType dtype = f32;
};

/// nn::Linear(in, out) with sharded inputs: x [..., in / ranks] -> y [..., out], whole on every
/// rank. Each rank's products are rounded to their dtype, then summed in f32. The bias is added
/// after that. With one rank the result has the bits of nn::Linear.
class RowParallelLinear : public nn::Module {
 public:
  RowParallelLinear(const Group& group, std::int64_t in, std::int64_t out,
                    const RowParallelOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  nn::Parameter weight;  ///< [out, in / ranks]: a shard
  nn::Parameter bias;    ///< [out]: whole on every rank, or undefined

 private:
  Group group_;
  bool input_is_parallel_;
};

/// nn::Embedding(vocab, dim) with sharded rows: index [...] (i64 or i32) -> [..., dim], whole on
/// every rank, with the bits of one rank. To tie it to the last layer of a language model, compute
/// this rank's logits as linear(copy_to_ranks(h, group), weight), for
/// vocab_parallel_cross_entropy().
class VocabParallelEmbedding : public nn::Module {
 public:
  VocabParallelEmbedding(const Group& group, std::int64_t vocab, std::int64_t dim,
                         DType dtype = f32);
  /// Throws Error for an index outside of [0, vocab): on a device when the host next waits for it.
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  nn::Parameter weight;  ///< [vocab / ranks, dim]: a shard

 private:
  void check_indices(const Tensor& index) const;

  Group group_;
};

/// nn::MultiHeadAttention(width, heads, options) with sharded heads and key heads: x [batch, n,
/// width] -> [batch, n, width], whole on every rank. With dropout each rank draws random numbers of
/// its own (RankNumbers), so results with dropout differ from those of one rank. options.device is
/// the group's device. A mask or bias covers all heads, and is the same on every rank.
class ParallelMultiHeadAttention : public nn::ModuleOf<ParallelMultiHeadAttention> {
 public:
  ParallelMultiHeadAttention(const Group& group, std::int64_t width, std::int64_t heads,
                             const nn::MultiHeadAttentionOptions& options = {});
  Tensor forward(const Tensor& x) override;
  Tensor forward(const Tensor& x, const nn::SeenKeys& seen);
  Tensor forward(const Tensor& x, const Tensor& memory, const nn::SeenKeys& seen = {});
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  nn::MultiHeadAttention heads;  ///< this rank's heads: shards of the projections, no bias in `out`
  nn::Parameter bias;            ///< [width]: bias of `out`, whole on every rank, or undefined

 private:
  nn::SeenKeys of_rank(nn::SeenKeys seen) const;
  Tensor finish(const Tensor& partial) const;

  Group group_;
  std::int64_t heads_;  ///< heads of this rank
  bool own_numbers_;
};

/// nn::SwiGLU(width, hidden) with sharded hidden units: x [..., width] -> [..., width], whole on
/// every rank. options.device is the group's device.
class ParallelSwiGLU : public nn::Module {
 public:
  ParallelSwiGLU(const Group& group, std::int64_t width, std::int64_t hidden,
                 const nn::SwiGLUOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  /// Weights [hidden, width]; each rank has some rows.
  ColumnParallelLinear gate, up;
  /// Weights [width, hidden]; each rank has some columns.
  RowParallelLinear down;

 private:
  Group group_;
};

}  // namespace firn::dist
