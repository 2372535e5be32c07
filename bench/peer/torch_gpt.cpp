// The same transformer with LibTorch: same tokens, same arithmetic, same initial distributions.
//   bench_torch_gpt [--threads N] [--epochs N] [--steps N]
#include "../gpt.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "setup.h"

using namespace bench::gpt;

namespace {

struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm1{norm()}, norm2{norm()};
  torch::nn::Linear qkv{kWidth, 3 * kWidth}, out{kWidth, kWidth};
  torch::nn::Linear up{kWidth, 4 * kWidth}, down{4 * kWidth, kWidth};
  torch::Tensor mask;

  static torch::nn::LayerNormOptions norm() { return torch::nn::LayerNormOptions({kWidth}); }
  explicit Block(torch::Tensor causal) : mask(std::move(causal)) {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor attention(const torch::Tensor& x) {
    const auto parts = qkv(x)
                           .view({kBatch, kLength, 3, kHeads, kHead})
                           .permute({2, 0, 3, 1, 4})
                           .contiguous()
                           .view({3, kBatch * kHeads, kLength, kHead})
                           .unbind(0);
    // Scale and mask ride on the product.
    const auto scores = torch::baddbmm(mask, parts[0], parts[1].transpose(1, 2), 1,
                                       1 / std::sqrt(static_cast<double>(kHead)));
    const auto heads = torch::bmm(torch::softmax(scores, -1), parts[2]);
    return out(heads.view({kBatch, kHeads, kLength, kHead})
                   .transpose(1, 2)
                   .reshape({kBatch, kLength, kWidth}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto h = x + attention(norm1(x));
    return h + down(torch::gelu(up(norm2(h))));
  }
};

struct Gpt : torch::nn::Module {
  torch::nn::Embedding token{kVocabulary, kWidth};
  torch::Tensor position = register_parameter("position", torch::randn({kLength, kWidth}));
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::LayerNorm norm{Block::norm()};
  torch::nn::Linear head{torch::nn::LinearOptions(kWidth, kVocabulary).bias(false)};

  Gpt() {
    register_module("token", token);
    const auto mask =
        torch::full({kLength, kLength}, -std::numeric_limits<float>::infinity()).triu(1);
    for (std::int64_t i = 0; i < kLayers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(mask)));
    register_module("norm", norm);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto h = token(x) + position;
    for (const auto& block : blocks) h = block->forward(h);
    return head(norm(h));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Options run(argc, argv);
  bench::set_up(bench::Options(argc, argv));
  Tokens tokens(run.all_steps());
  Gpt net;
  std::int64_t parameters = 0;
  for (const auto& p : net.parameters()) parameters += p.numel();
  if (parameters != kParameters)
    throw std::runtime_error("gpt: " + std::to_string(parameters) + " parameters");
  torch::optim::AdamW opt(net.parameters(), torch::optim::AdamWOptions(kRate).weight_decay(1e-2));
  std::vector<double> rates, losses;
  for (int step = 0, e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (int i = 0; i < run.steps; ++i, ++step) {
      const auto x = torch::from_blob(tokens.input_of(step), {kBatch, kLength}, torch::kInt64);
      const auto y = torch::from_blob(tokens.target_of(step), {kBatch * kLength}, torch::kInt64);
      const auto loss = torch::nn::functional::cross_entropy(
          net.forward(x).view({kBatch * kLength, kVocabulary}), y);
      opt.zero_grad();
      loss.backward();
      opt.step();
      losses.push_back(loss.item<double>());
    }
    rates.push_back(kBatch * kLength * run.steps / (bench::seconds() - start));
  }
  bench::report("gpt.rate", "tokens/s", rates);
  bench::report("gpt.peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report("gpt.loss", "nats", {mean_of_last(losses)});
}
