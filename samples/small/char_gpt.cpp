// A small GPT on characters: it learns a text by heart, and continues it from its beginning.
#include <cstdio>
#include <string>

#include "firn/firn.h"

using namespace firn;

static const std::string kText =
    "Firn is granular snow that accumulates, layer on layer, until it is ice. "
    "Each layer rests on the one below it, and none is in a hurry. ";

struct Block : nn::Module {
  nn::LayerNorm before{64}, between{64};
  nn::MultiHeadAttention attention{64, 4, {.causal = true, .rope_theta = 10000.0}};
  nn::MLP mlp{{64, 128, 64}, {.activation = Activation::gelu_tanh}};
  FIRN_MEMBERS(before, attention, between, mlp)
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(before(x));
    return y + mlp(between(y));
  }
};

struct Gpt : nn::Module {
  nn::Embedding tokens{128, 64};
  std::vector<Block> blocks{2};
  nn::LayerNorm norm{64};
  nn::Linear out{64, 128};
  FIRN_MEMBERS(tokens, blocks, norm, out)
  Tensor forward(const Tensor& index) override {
    Tensor x = tokens(index);
    for (Block& block : blocks) x = block(x);
    return out(norm(x));
  }
};

static Tensor codes(const std::string& text) {
  return tensor(std::vector<std::int64_t>(text.begin(), text.end()),
                {static_cast<std::int64_t>(text.size())});
}

int main() {
  manual_seed(1);
  constexpr std::int64_t kLength = 48;
  const Tensor all = codes(kText);
  const std::int64_t windows = all.numel() - kLength;
  const data::Dataset text(windows, [&](std::int64_t i) {
    return data::Sample{all.slice(0, i, i + kLength), all.slice(0, i + 1, i + 1 + kLength)};
  });
  data::Loader loader(text, {.batch = 16, .shuffle = true, .seed = 1});
  Gpt net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(3e-3, 150)}, {.clip_norm = 1});
  double loss = 0;
  for (int epoch = 0; epoch < 25; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      const Loss l = cross_entropy(net(batch.x()), batch.y());
      opt.backward(l);
      opt.step();
      loss = l.item();
    }

  const NoGrad guard;
  std::string said = kText.substr(0, 24);
  while (said.size() < 100) {
    const std::string last = said.substr(said.size() < kLength ? 0 : said.size() - kLength);
    said += static_cast<char>(argmax(net(codes(last).unsqueeze(0))[0][-1]).item());
  }
  std::printf("loss %.3f: \"%s\"\n", loss, said.c_str());
  return said == kText.substr(0, said.size()) ? 0 : 1;
}
