// The transformers of ../cpu/gpt.cpp with LibTorch: equal tokens, arithmetic, initial
// distributions.
//   bench_torch_gpt [gpt|gpt2] [--threads N] [--epochs N] [--steps N] [--precision f32|bf16]
// --precision bf16 is autocast. The figures are gpt.rate, ... in both.
#include "../gpt.h"

#include <torch/torch.h>

#include "setup.h"

using namespace bench::gpt;

namespace {

struct Block : torch::nn::Module {
  const Sizes& s;
  torch::nn::LayerNorm norm1{norm(s)}, norm2{norm(s)};
  torch::nn::Linear qkv{s.width, 3 * s.width}, out{s.width, s.width};
  torch::nn::Linear up{s.width, 4 * s.width}, down{4 * s.width, s.width};
  torch::Tensor mask;

  static torch::nn::LayerNormOptions norm(const Sizes& s) {
    return torch::nn::LayerNormOptions({s.width});
  }
  Block(const Sizes& sizes, torch::Tensor causal) : s(sizes), mask(std::move(causal)) {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor attention(const torch::Tensor& x) {
    const auto parts = qkv(x)
                           .view({s.batch, s.length, 3, s.heads, s.head()})
                           .permute({2, 0, 3, 1, 4})
                           .contiguous()
                           .unbind(0);
    const auto heads = bench::attend(parts[0], parts[1], parts[2], mask);
    return out(heads.transpose(1, 2).reshape({s.batch, s.length, s.width}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto h = x + attention(norm1(x));
    return h + down(torch::gelu(up(norm2(h))));
  }
};

struct Gpt : torch::nn::Module {
  torch::nn::Embedding token;
  torch::Tensor position;
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::LayerNorm norm;
  torch::Tensor head;  // [vocabulary, width]

  explicit Gpt(const Sizes& s) : token(s.vocabulary, s.width), norm(Block::norm(s)) {
    register_module("token", token);
    position = register_parameter("position", torch::randn({s.length, s.width}));
    const auto mask = bench::causal_mask(s.length);
    for (std::int64_t i = 0; i < s.layers; ++i)
      blocks.push_back(
          register_module("block" + std::to_string(i), std::make_shared<Block>(s, mask)));
    register_module("norm", norm);
    if (s.tied) {
      head = token->weight;
      torch::nn::init::normal_(head, 0, kTiedDeviation);
    } else {
      head = register_parameter("head", torch::nn::Linear(s.width, s.vocabulary)->weight);
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto h = token(x) + position;
    for (const auto& block : blocks) h = block->forward(h);
    return torch::linear(norm(h), head);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  const Sizes& sizes = sizes_of(run.work);
  bench::set_up(run);
  Tokens tokens(sizes, run.all_steps());
  Gpt net(sizes);
  std::int64_t parameters = 0;
  for (const auto& p : net.parameters()) parameters += p.numel();
  if (parameters != sizes.parameters)
    throw std::runtime_error("gpt: " + std::to_string(parameters) + " parameters");
  torch::optim::AdamW opt(net.parameters(),
                          torch::optim::AdamWOptions(sizes.rate).weight_decay(1e-2));
  std::vector<double> rates, losses;
  for (int step = 0, e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (int i = 0; i < run.steps; ++i, ++step) {
      const auto x =
          torch::from_blob(tokens.input_of(step), {sizes.batch, sizes.length}, torch::kInt64);
      const auto y = torch::from_blob(tokens.target_of(step), {sizes.tokens()}, torch::kInt64);
      const auto loss = [&] {
        const bench::Autocast guard(run.precision);
        return torch::nn::functional::cross_entropy(
            net.forward(x).view({sizes.tokens(), sizes.vocabulary}), y);
      }();
      opt.zero_grad();
      loss.backward();
      opt.step();
      losses.push_back(loss.item<double>());
    }
    rates.push_back(static_cast<double>(sizes.tokens() * run.steps) / (bench::seconds() - start));
  }
  const std::string name = sizes.name;
  bench::report(name + ".rate", "tokens/s", rates);
  bench::report(name + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report(name + ".loss", "nats", {mean_of_last(losses)});
}
