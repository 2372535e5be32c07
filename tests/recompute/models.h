// Models of every kind of layer, for tests of checkpoint(): each can run its parts plainly or
// checkpointed.
#pragma once

#include <functional>
#include <vector>

#include "firn/firn.h"
#include "firn/warning.h"
#include "support/values.h"

namespace firn::testing {

/// A residual block of a transformer.
struct TransformerBlock : nn::Module {
  std::int64_t width, heads;
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
  nn::Dropout drop;
  FIRN_MEMBERS(norm1, norm2, qkv, out, up, down, drop)

  TransformerBlock(std::int64_t w, std::int64_t h, double p)
      : width(w),
        heads(h),
        norm1(w),
        norm2(w),
        qkv(w, 3 * w),
        out(w, w),
        up(w, 4 * w),
        down(4 * w, w),
        drop(p) {}
  Tensor forward(const Tensor& x) override {
    const std::int64_t b = x.size(0), n = x.size(1);
    const Tensor all = transpose(reshape(qkv(norm1(x)), {b, n, 3 * heads, width / heads}), 1, 2);
    const auto parts = split(all, heads, 1);
    const Tensor y = attention(parts[0], parts[1], parts[2], {.causal = true, .dropout = 0.1});
    const Tensor h = x + drop(out(reshape(transpose(y, 1, 2), {b, n, width})));
    return h + drop(down(gelu(up(norm2(h)))));
  }
};

struct Transformer : nn::Module {
  std::vector<TransformerBlock> blocks;
  nn::LayerNorm norm{16};
  nn::Linear head{16, 5};
  FIRN_MEMBERS(blocks, norm, head)
  Transformer() {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(16, 2, 0.2);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (auto& b : blocks) h = b(h);
    return reshape(head(norm(h)), {x.size(0) * x.size(1), 5});
  }
};

/// A residual block of a convolutional network. One norm pools its moments over a cycle, the other
/// moves in every micro-batch.
struct ConvBlock : nn::Module {
  nn::Conv2d first{4, 4, 3, {.padding = 1}}, second{4, 4, 3, {.padding = 1}};
  nn::BatchNorm2d norm1{4}, norm2{4, {.accumulation = nn::BatchNormMode::per_step}};
  nn::Dropout2d drop{0.2};
  FIRN_MEMBERS(first, second, norm1, norm2, drop)
  Tensor forward(const Tensor& x) override {
    return relu(x + drop(norm2(second(relu(norm1(first(x)))))));
  }
};

struct ConvNet : nn::Module {
  nn::Conv2d stem{1, 4, 3, {.padding = 1}};
  std::vector<ConvBlock> blocks{3};
  nn::Linear head{4 * 3 * 3, 5};
  FIRN_MEMBERS(stem, blocks, head)
  Tensor forward(const Tensor& x) override {
    Tensor h = stem(x);
    for (auto& b : blocks) h = b(h);
    return head(flatten(max_pool2d(h, 2), 1));
  }
};

/// Dense layers with shortcuts: x is used several times inside and outside of a block.
struct DenseBlock : nn::Module {
  nn::MLP mlp{{8, 12, 8}};
  nn::Linear gate{8, 8};
  nn::Dropout drop{0.3};
  FIRN_MEMBERS(mlp, gate, drop)
  Tensor forward(const Tensor& x) override {
    return x * sigmoid(gate(x)) + drop(mlp(x)) + 0.5 * tanh(x);
  }
};

struct DenseNet : nn::Module {
  std::vector<DenseBlock> blocks{3};
  nn::Linear head{8, 5};
  FIRN_MEMBERS(blocks, head)
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (auto& b : blocks) h = b(h) + h;
    return head(h + x);
  }
};

/// While alive, nobody is told of warnings: BatchNorm warns of moving in every micro-batch.
class Quiet {
 public:
  Quiet() : before_(set_warning_handler([](const auto&...) {})) {}
  ~Quiet() { set_warning_handler(before_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  WarningHandler before_;
};

/// All numbers of an optimizer's state, and how far the thread's random stream is.
inline std::vector<double> state_and_stream(const optim::Optimizer& opt) {
  std::vector<double> all;
  for (const optim::NamedState& s : opt.state())
    for (const double v : values_of(s.tensor)) all.push_back(v);
  all.push_back(static_cast<double>(default_generator().get().offset));
  return all;
}

}  // namespace firn::testing
