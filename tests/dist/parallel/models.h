// A small language model of divided layers, for the tests of training over a mesh.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "dist/training.h"
#include "firn/dist/mesh.h"
#include "firn/dist/parallel/functions.h"
#include "firn/dist/parallel/layers.h"

namespace firn::testing {

/// A block of a transformer whose heads and hidden units are divided.
struct ParallelBlock : nn::Module {
  nn::LayerNorm norm1{16}, norm2{16};
  dist::ParallelMultiHeadAttention attend;
  dist::ParallelSwiGLU unit;
  nn::Dropout drop;
  FIRN_MEMBERS(norm1, norm2, attend, unit, drop)

  ParallelBlock(const dist::Group& tp, double p)
      : attend(tp, 16, 4, {.causal = true, .rope_theta = 100.0, .device = tp.device()}),
        unit(tp, 16, 24, {.device = tp.device()}),
        drop(p) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + drop(attend(norm1(x)));
    return h + drop(unit(norm2(h)));
  }
};

/// Predicts the next of 12 tokens; the last layer has the weight of the first.
struct ParallelGpt : nn::Module {
  dist::Group tp;
  dist::VocabParallelEmbedding tokens;
  std::vector<ParallelBlock> blocks;
  nn::LayerNorm norm{16};
  FIRN_MEMBERS(tokens, blocks, norm)

  explicit ParallelGpt(const dist::Group& group, DType dtype = f32, double p = 0)
      : tp(group), tokens(group, 12, 16) {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(group, p);
    to(dtype);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor h = tokens(ids);
    for (auto& b : blocks) h = b(h);
    return linear(dist::copy_to_ranks(norm(h), tp), tokens.weight);
  }
  /// ids [n, length]: each token but the last predicts the next one.
  Loss loss(const Tensor& ids) {
    const std::int64_t n = ids.size(1);
    return dist::vocab_parallel_cross_entropy((*this)(ids.slice(1, 0, n - 1)), ids.slice(1, 1, n),
                                              tp);
  }
};

/// Rows of seven tokens.
inline Tensor tokens(std::int64_t rows, std::uint64_t seed) {
  Rng rng(seed + 100);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < rows * 7; ++i) out.push_back(rng.below(12));
  return tensor(out, {rows, 7});
}

/// This rank's part of a parameter of the model on one rank.
inline Tensor part_of(const NamedTensor& whole, const dist::Group& tp) {
  const auto ends = [&](const char* name) { return whole.name.ends_with(name); };
  const Tensor& t = whole.tensor;
  const auto part = [&](const Tensor& of, int axis) {
    const std::int64_t n = of.size(axis) / tp.size();
    return of.slice(axis, n * tp.rank(), n * (tp.rank() + 1));
  };
  if (ends("qkv.weight") || ends("qkv.bias")) {
    std::vector<Tensor> parts;
    for (const Tensor& of : split(t, t.size(0) / 3)) parts.push_back(part(of, 0));
    return cat(parts);
  }
  if (ends("out.weight") || ends("down.weight")) return part(t, 1);
  for (const char* name :
       {"tokens.weight", "embed.weight", "head.weight", "gate.weight", "up.weight"})
    if (ends(name)) return part(t, 0);
  return t;
}

/// Copies of a model's parameters.
inline std::vector<NamedTensor> copies_of(const nn::Module& net) {
  std::vector<NamedTensor> out;
  for (const NamedTensor& p : net.named_parameters())
    out.push_back({p.name, p.tensor.detach().clone()});
  return out;
}

/// How far a rank's parameters are from those of the model on one rank, relative to the latter.
inline double distance_from(const std::vector<NamedTensor>& one, const nn::Module& net,
                            const dist::Group& tp) {
  std::vector<double> mine, wanted;
  for (const NamedTensor& p : net.named_parameters())
    for (const NamedTensor& w : one) {
      if (w.name != p.name) continue;
      for (const double v : values_of(p.tensor)) mine.push_back(v);
      for (const double v : values_of(part_of(w, tp))) wanted.push_back(v);
    }
  return mine.empty() ? HUGE_VAL : relative_distance(mine, wanted);
}

}  // namespace firn::testing
