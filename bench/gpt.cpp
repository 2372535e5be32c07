// Training a small transformer, as a user of firn would write it of the operations there are.
//   bench_gpt [--threads N] [--epochs N] [--steps N]
// gpt.loss is the mean of the last ten steps.
#include "gpt.h"

#include <firn/firn.h>

#include <cmath>
#include <limits>

#include "harness.h"

using namespace firn;
using namespace bench::gpt;

namespace {

/// Where a position may not look: above the diagonal, minus infinity.
Tensor causal_mask() {
  const Tensor position = arange(kLength);
  return where(le(position, unsqueeze(position, 1)), zeros({1}),
               full({1}, -std::numeric_limits<double>::infinity()));
}

struct Block : nn::Module {
  nn::LayerNorm norm1{kWidth}, norm2{kWidth};
  nn::Linear qkv{kWidth, 3 * kWidth}, out{kWidth, kWidth};
  nn::Linear up{kWidth, 4 * kWidth}, down{4 * kWidth, kWidth};
  Tensor mask;
  FIRN_MEMBERS(norm1, qkv, out, norm2, up, down)

  explicit Block(const Tensor& causal) : mask(causal) {}

  Tensor attention(const Tensor& x) {
    const Tensor parts =
        contiguous(permute(reshape(qkv(x), {kBatch, kLength, 3, kHeads, kHead}), {2, 0, 3, 1, 4}));
    const Tensor q = select(parts, 0, 0), k = select(parts, 0, 1), v = select(parts, 0, 2);
    const Tensor scores = matmul(q / std::sqrt(kHead), transpose(k, -1, -2)) + mask;
    const Tensor heads = matmul(softmax(scores), v);  // [batch, head, position, kHead]
    return out(reshape(transpose(heads, 1, 2), {kBatch, kLength, kWidth}));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + attention(norm1(x));
    return h + down(gelu(up(norm2(h))));
  }
};

struct Gpt : nn::Module {
  nn::Embedding token{kVocabulary, kWidth};
  nn::Parameter position{randn({kLength, kWidth})};
  std::vector<Block> blocks;
  nn::LayerNorm norm{kWidth};
  nn::Linear head{kWidth, kVocabulary, {.bias = false}};
  FIRN_MEMBERS(token, position, blocks, norm, head)

  Gpt() {
    const Tensor mask = causal_mask();
    for (std::int64_t i = 0; i < kLayers; ++i) blocks.emplace_back(mask);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = token(x) + position;
    for (Block& block : blocks) h = block(h);
    return head(norm(h));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Options run(argc, argv);
  set_num_threads(run.threads);
  manual_seed(1);
  Tokens tokens(run.all_steps());
  Gpt net;
  if (net.num_parameters() != kParameters)
    throw std::runtime_error("gpt: " + std::to_string(net.num_parameters()) + " parameters");
  optim::AdamW opt(net.parameters(), {.lr = kRate});
  std::vector<double> rates, losses;
  for (int step = 0, e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (int i = 0; i < run.steps; ++i, ++step) {
      const Tensor x = from_memory(tokens.input_of(step), {kBatch, kLength});
      const Tensor y = from_memory(tokens.target_of(step), {kBatch, kLength});
      const Loss loss = cross_entropy(net(x), y);
      opt.backward(loss);
      opt.step();
      losses.push_back(loss.item());
    }
    rates.push_back(kBatch * kLength * run.steps / (bench::seconds() - start));
  }
  bench::report("gpt.rate", "tokens/s", rates);
  bench::report("gpt.peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report("gpt.loss", "nats", {mean_of_last(losses)});
}
