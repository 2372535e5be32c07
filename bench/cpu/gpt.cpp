// Training a transformer, as a user of firn would write it.
//   bench_gpt [gpt|gpt2] [--threads N] [--epochs N] [--steps N] [--precision P]
// gpt.loss is the mean of the last ten steps. With --precision the figures are gpt_bf16.rate, ...
#include "../gpt.h"

#include <firn/firn.h>

#include <stdexcept>

#include "../harness.h"
#include "precision.h"

using namespace firn;
using namespace bench::gpt;

namespace {

struct Block : nn::Module {
  const Sizes& s;
  nn::LayerNorm norm1{s.width}, norm2{s.width};
  nn::Linear qkv{s.width, 3 * s.width}, out{s.width, s.width};
  nn::Linear up{s.width, 4 * s.width}, down{4 * s.width, s.width};
  FIRN_MEMBERS(norm1, qkv, out, norm2, up, down)

  explicit Block(const Sizes& sizes) : s(sizes) {}

  Tensor attention(const Tensor& x) {
    // Queries, keys and values stay where the product wrote them.
    const Tensor all = transpose(reshape(qkv(x), {s.batch, s.length, 3 * s.heads, s.head()}), 1, 2);
    const auto parts = split(all, s.heads, 1);
    const Tensor heads = firn::attention(parts[0], parts[1], parts[2], {.causal = true});
    return out(reshape(transpose(heads, 1, 2), {s.batch, s.length, s.width}));
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
  Tensor forward(const Tensor& x) override {
    Tensor h = token(x) + position;
    for (Block& block : blocks) h = block(h);
    return linear(norm(h), head);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  const bench::Precision precision(run.precision);
  const Sizes& sizes = sizes_of(run.work);
  set_num_threads(run.threads);
  manual_seed(1);
  Tokens tokens(sizes, run.all_steps());
  Gpt net(sizes);
  if (net.num_parameters() != sizes.parameters)
    throw std::runtime_error("gpt: " + std::to_string(net.num_parameters()) + " parameters");
  net.to(precision.model);
  optim::AdamW opt(net.parameters(), {.lr = sizes.rate}, precision.step());
  std::vector<double> rates, losses;
  for (int step = 0, e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (int i = 0; i < run.steps; ++i, ++step) {
      const Tensor x = from_memory(tokens.input_of(step), {sizes.batch, sizes.length});
      const Tensor y = from_memory(tokens.target_of(step), {sizes.batch, sizes.length});
      const Loss loss = precision.run([&] { return cross_entropy(net(x), y); });
      opt.backward(loss);
      opt.step();
      losses.push_back(loss.item());
    }
    rates.push_back(static_cast<double>(sizes.tokens() * run.steps) / (bench::seconds() - start));
  }
  const std::string name = run.named(sizes.name);
  bench::report(name + ".rate", "tokens/s", rates);
  bench::report(name + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report(name + ".loss", "nats", {mean_of_last(losses)});
}
