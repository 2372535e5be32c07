// What the tests of exact mode share: models, and a run whose bits are compared over all cuts.
#pragma once

#include <fmt/format.h>

#include <string>

#include "dist/training.h"
#include "support/threads.h"

namespace firn::testing {

// ---- Models: dropout in all, every way in which a parameter gets a gradient ----

struct Mlp : nn::Module {
  nn::Linear a{6, 24}, b{24, 24}, c{24, 3};
  nn::Dropout drop{0.3};
  FIRN_MEMBERS(a, b, c, drop)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(a(x));
    return c(drop(h + gelu(b(h))));  // a residual
  }
};

/// Tokens from numbers: an embedding that is also the last layer's weight, attention, norms.
struct Gpt : nn::Module {
  nn::Embedding tokens{11, 16};
  nn::LayerNorm norm1{16}, norm2{16};
  nn::MultiHeadAttention attend{16, 2, {.causal = true, .dropout = 0.2, .rope_theta = 100.0}};
  nn::SwiGLU unit{16, 24};
  nn::Dropout drop{0.1};
  FIRN_MEMBERS(tokens, norm1, norm2, attend, unit, drop)
  Tensor forward(const Tensor& ids) override {
    Tensor h = tokens(ids);
    h = h + attend(norm1(h));
    return norm2(h + drop(unit(h)));
  }
};

struct Conv : nn::Module {
  static constexpr bool kImages = true;  // else rows
  nn::Conv2d a{1, 4, 3, {.padding = 1}}, b{4, 4, 3, {.padding = 1}};
  nn::GroupNorm norm{2, 4};
  nn::Linear head{4 * 3 * 2, 3};
  nn::Dropout drop{0.2};
  FIRN_MEMBERS(a, b, norm, head, drop)
  Tensor forward(const Tensor& x) override {
    return head(drop(flatten(silu(norm(b(relu(a(x))))), 1)));
  }
};

struct Setting {
  DType dtype = f32;
  std::int64_t micro_batch = 8;
  int threads = 1;
  double loss_scale = 0;  ///< 0: the default
  Device device = Device::cpu();
};

/// Bits of weights, state, loss scale, reports and random stream after a run. Batches of 40, 21 and
/// 64 samples in chunks of 8: the second one ends with a short chunk.
template <class Net>
std::string train(const dist::Group& group, const Setting& s) {
  const NumThreadsScope threads(s.threads);
  manual_seed(4);
  Net net;
  net.to(s.dtype);
  net.to(s.device);
  optim::StepOptions step{.clip_norm = 1, .ema = 0.9, .exact = {.chunk = 8}};
  if (s.loss_scale > 0) step.loss_scale = optim::LossScale::dynamic({.init = s.loss_scale});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, step);
  dist::distribute(opt, group);
  std::string out;
  std::uint64_t seed = 30;
  for (const std::int64_t n : {40, 21, 64}) {
    seed += 2;
    const auto loss = [&](std::int64_t first, std::int64_t last) {
      if constexpr (std::is_same_v<Net, Gpt>) {
        const Rows rows(n * 5, 1, 11, seed);
        const Tensor ids = rows.y.reshape({n, 5}).slice(0, first, last).to(s.device);
        return linear_cross_entropy(net(ids), net.tokens.weight, ids);
      } else {
        const Rows rows(n, 6, 3, seed);
        Tensor x = rows.x.slice(0, first, last).to(s.dtype).to(s.device);
        if constexpr (requires { Net::kImages; }) x = x.reshape({last - first, 1, 3, 2});
        return cross_entropy(net(x), rows.y.slice(0, first, last).to(s.device));
      }
    };
    const auto report = opt.run_batch(n, s.micro_batch, loss);
    out += fmt::format("{} {} {:a} {:a} {:a} {}\n", report.applied(), report.weight(),
                       report.norm(), report.loss(), report.loss_scale(), report.micro_steps());
  }
  const auto totals = opt.loss_totals();
  out +=
      fmt::format("{:a} {:a} {}\n", totals.loss, totals.weight, default_generator().get().offset);
  for (const auto& buffer : net.named_buffers())
    if (buffer.tensor.defined()) out += bits_of(buffer.tensor).bytes;
  return out + bits_of_training(opt).bytes + bits_of(state_of(opt, "loss_scale")).bytes;
}

template <class Net>
void check_all_cuts(DType dtype, double loss_scale = 0) {
  const std::string expected =
      train<Net>(dist::Group(), {.dtype = dtype, .loss_scale = loss_scale});
  for (const std::int64_t micro_batch : {8, 16, 32, 64})
    for (const int threads : {1, 2, 3}) {
      if (threads > 1 && micro_batch != 32) continue;
      CAPTURE(dtype, micro_batch, threads);
      const Threads pool(3);
      CHECK(train<Net>(dist::Group(), {dtype, micro_batch, threads, loss_scale}) == expected);
    }
  for (const int ranks : {2, 3, 4, 5}) {  // 21 samples are three chunks
    CAPTURE(dtype, ranks);
    const auto runs = on_ranks<std::string>(ranks, [&](const dist::Group& g) {
      return train<Net>(g, {dtype, 8 * (1 + ranks % 3), 1, loss_scale});
    });
    for (const auto& r : runs) CHECK(r == expected);
  }
}

}  // namespace firn::testing
