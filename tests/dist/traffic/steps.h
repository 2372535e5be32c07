// Training steps of every mode, whose calls are counted. Each prints what the model of
// scripts/step-time has to know, and what a rank has called:
//
//   mode=exact dp=3 chunks=7 ...  <tab> rank <tab> sizes <tab> numels of the parameters
//   mode=exact dp=3 chunks=7 ...  <tab> rank <tab> group <tab> call <tab> bytes <tab> times
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/step/bucket_size.h"
#include "dist/traffic/counting.h"
#include "firn/firn.h"

namespace firn::testing {

/// A block of a transformer whose heads and hidden units are divided.
struct CountedBlock : nn::Module {
  nn::LayerNorm norm1{16}, norm2{16};
  dist::ParallelMultiHeadAttention attend;
  dist::ParallelSwiGLU unit;
  FIRN_MEMBERS(norm1, norm2, attend, unit)
  explicit CountedBlock(const dist::Group& tp)
      : attend(tp, 16, 4, {.causal = true}), unit(tp, 16, 24) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + attend(norm1(x));
    return h + unit(norm2(h));
  }
};

/// Predicts one of 12 tokens; the last layer has the weight of the first.
struct CountedGpt : nn::Module {
  dist::Group tp;
  dist::VocabParallelEmbedding tokens;
  std::vector<CountedBlock> blocks;
  FIRN_MEMBERS(tokens, blocks)
  explicit CountedGpt(const dist::Group& group) : tp(group), tokens(group, 12, 16) {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(group);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor h = tokens(ids);
    for (auto& block : blocks) h = block(h);
    return linear(dist::copy_to_ranks(h, tp), tokens.weight);
  }
};

/// The steps of one group of ranks. `begin` is called before a step that is counted, and `end` with
/// its name after it.
class CountedSteps {
 public:
  using Begin = std::function<void()>;
  using End = std::function<void(const std::string& name)>;

  CountedSteps(dist::Group inner, Begin begin, End end)
      : inner_(std::move(inner)), begin_(std::move(begin)), end_(std::move(end)) {}

  void run_all() {
    const int n = inner_.size();
    for (const int zero : {0, 1, 2, 3}) {
      plain({7, 16, 3}, zero, f32);
      plain({7, 16, 3}, zero, bf16);
      for (const int chunks : {4, 6, 7}) exact(chunks, zero);
    }
    for (const std::int64_t bucket : {64, 600, 20000}) {
      optim::bucket_bytes() = bucket;  // the same on all ranks
      plain({7, 80, 60, 3}, 2, f32);
      plain({7, 80, 60, 3}, 2, bf16);
      exact(7, 2);
    }
    optim::bucket_bytes() = usual_;
    plain({1100, 1100}, 0, f32);  // several pieces over MPI
    layers(1, n);
    if (n == 4) layers(2, 2);
    stages(1, n, 5);
    stages(1, n, 1);  // fewer micro-batches than stages
    if (n == 4) stages(2, 2, 3);
  }

 private:
  void plain(const std::vector<std::int64_t>& sizes, int zero, DType dtype) {
    const dist::Group group = counted("dp");
    manual_seed(1);
    nn::MLP net(sizes, {.dtype = dtype});
    optim::AdamW opt(net.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
    dist::distribute(opt, group, {.zero = zero});
    const Tensor x = ones({8, sizes.front()}, dtype), y = zeros({8}, i64);
    // Two samples make a micro-step, and the first ranks have one sample more.
    const std::int64_t most = 1 + 7 / group.size();
    count(fmt::format("mode=plain dp={} zero={} weight={} width={} layers={} bucket={} "
                      "micro_steps={}",
                      group.size(), zero, size_of(dtype), sizes.front(), sizes.size(),
                      optim::bucket_bytes().load(), (most + 1) / 2),
          opt, [&] {
            opt.run_batch(8, 2, [&](std::int64_t first, std::int64_t last) {
              return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
            });
          });
  }

  void exact(int chunks, int zero) {
    const dist::Group group = counted("dp");
    manual_seed(1);
    nn::MLP net({7, 16, 3});
    optim::AdamW opt(net.parameters(), {.lr = 1e-3}, {.exact = {.chunk = 2}});
    dist::distribute(opt, group, {.zero = zero});
    const Tensor x = ones({2 * chunks, 7}), y = zeros({2 * chunks}, i64);
    count(fmt::format("mode=exact dp={} zero={} weight=4 chunks={} bucket={}", group.size(), zero,
                      chunks, optim::bucket_bytes().load()),
          opt, [&] {
            opt.run_batch(2 * chunks, 2, [&](std::int64_t first, std::int64_t last) {
              return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
            });
          });
  }

  void layers(int dp, int tp) {
    if (4 % tp != 0) return;  // heads
    const dist::Mesh mesh(counted("all"), {.dp = dp, .tp = tp});
    manual_seed(1);
    CountedGpt net(mesh.tp());
    optim::AdamW opt(net.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
    dist::distribute(opt, mesh);
    const Tensor ids = zeros({4 * dp, 6}, i64);
    // Two sequences of six tokens, 16 wide.
    count(fmt::format("mode=layers dp={} tp={} zero=0 weight=4 blocks=2 micro_steps=2 rows=12 "
                      "activation=192",
                      dp, tp),
          opt, [&] {
            opt.run_batch(4 * dp, 2, [&](std::int64_t first, std::int64_t last) {
              const Tensor part = ids.slice(0, first, last);
              return dist::vocab_parallel_cross_entropy(net(part), part, mesh.tp());
            });
          });
  }

  void stages(int dp, int pp, int micro_steps) {
    const dist::Mesh mesh(counted("all"), {.dp = dp, .pp = pp});
    manual_seed(1);
    nn::Linear stage(10, 10);
    optim::AdamW opt(stage.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
    dist::distribute(opt, mesh);
    dist::Pipeline pipeline(mesh, stage);
    const std::int64_t batch = 2 * micro_steps * dp;
    const Tensor x = ones({batch, 10}), y = zeros({batch}, i64);
    count(fmt::format("mode=stages dp={} pp={} zero=0 weight=4 stage={} micro_steps={} "
                      "activation=20",
                      dp, pp, mesh.pp().rank(), micro_steps),
          opt, [&] {
            pipeline.run_batch(
                opt, batch, 2,
                [&](std::int64_t first, std::int64_t last) { return x.slice(0, first, last); },
                [&](const Tensor& out, std::int64_t first, std::int64_t last) {
                  return cross_entropy(out, y.slice(0, first, last));
                });
          });
  }

  dist::Group counted(const char* name) {
    return dist::Group(std::make_shared<Counting>(
        inner_, name, std::vector<std::string>{"tp", "dp", "pp", "copy"}, calls_));
  }

  void count(const std::string& name, const optim::Optimizer& opt,
             const std::function<void()>& step) {
    step();  // once before: nothing of what is counted is of a beginning
    calls_->clear();
    begin_();
    step();
    end_(name);
    std::string out = fmt::format("{}\t{}\tsizes\t", name, inner_.rank());
    for (std::size_t i = 0; i < opt.parameters().size(); ++i)
      out += fmt::format("{}{}", i > 0 ? "," : "", opt.parameters()[i].numel());
    out += "\n";
    for (const auto& [call, times] : *calls_)
      out += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", name, inner_.rank(), std::get<0>(call),
                         std::get<1>(call), std::get<2>(call), times);
    std::fputs(out.c_str(), stdout);  // one call: other ranks print, too
    std::fflush(stdout);
  }

  const dist::Group inner_;
  const Begin begin_;
  const End end_;
  const std::int64_t usual_ = optim::bucket_bytes();
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
};

}  // namespace firn::testing
