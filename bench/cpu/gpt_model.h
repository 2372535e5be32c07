// The transformer of gpt.cpp, recompute.cpp and exact.cpp, as a user of firn would write it.
#pragma once

#include <firn/firn.h>

#include <vector>

#include "../gpt.h"

namespace bench::gpt {

using namespace firn;  // NOLINT: a program's own header

struct Block : nn::Module {
  const Sizes& s;
  nn::LayerNorm norm1{s.width}, norm2{s.width};
  nn::Linear qkv{s.width, 3 * s.width}, out{s.width, s.width};
  nn::Linear up{s.width, 4 * s.width}, down{4 * s.width, s.width};
  FIRN_MEMBERS(norm1, qkv, out, norm2, up, down)

  explicit Block(const Sizes& sizes) : s(sizes) {}

  Tensor attention(const Tensor& x) {
    // Queries, keys and values stay where the product wrote them.
    const std::int64_t n = x.size(0);
    const Tensor all = transpose(reshape(qkv(x), {n, s.length, 3 * s.heads, s.head()}), 1, 2);
    const auto parts = split(all, s.heads, 1);
    const Tensor heads = firn::attention(parts[0], parts[1], parts[2], {.causal = true});
    return out(reshape(transpose(heads, 1, 2), {n, s.length, s.width}));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + attention(norm1(x));
    return h + down(gelu(up(norm2(h))));
  }
};

struct Gpt : nn::Module {
  nn::Embedding token;
  nn::Parameter position;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Parameter head;  // [vocabulary, width]
  FIRN_MEMBERS(token, position, blocks, norm, head)

  explicit Gpt(const Sizes& s)
      : token(s.vocabulary, s.width), position(randn({s.length, s.width})), norm(s.width) {
    blocks.reserve(static_cast<std::size_t>(s.layers));
    for (std::int64_t i = 0; i < s.layers; ++i) blocks.emplace_back(s);
    head = s.tied ? token.weight : nn::Linear(s.width, s.vocabulary, {.bias = false}).weight;
    if (!s.tied) return;
    const NoGrad guard;
    copy_(token.weight, randn({s.vocabulary, s.width}) * kTiedDeviation);
  }
  Tensor forward(const Tensor& x) override { return linear(hidden(x), head); }
  /// Returns the input of the head.
  Tensor hidden(const Tensor& x) {
    Tensor h = token(x) + position;
    for (Block& block : blocks) h = block(h);
    return norm(h);
  }
};

}  // namespace bench::gpt
