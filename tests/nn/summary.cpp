// The summary table, to the letter.
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"

using namespace firn;

namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(flatten(x, 1)))))); }
};

struct Block : nn::Module {
  nn::LayerNorm norm{64};
  nn::Linear up{64, 256}, down{256, 64};
  nn::Dropout drop{0.1};
  FIRN_MEMBERS(norm, up, down, drop)
  Tensor forward(const Tensor& x) override { return x + drop(down(gelu(up(norm(x))))); }
};

struct Model : nn::Module {
  nn::Embedding token_embedding{1000, 64};
  std::vector<Block> blocks;
  nn::Linear head{64, 1000, {.bias = false}};
  nn::Linear forgotten{64, 64};
  nn::Buffer seen{zeros({1000})};
  Model() {
    blocks.emplace_back();
    blocks[0].set_requires_grad(false);
    head.weight = token_embedding.weight;
  }
  FIRN_MEMBERS(token_embedding, blocks, head, seen)
  Tensor forward(const Tensor& x) override {
    Tensor y = token_embedding(x);
    for (int i = 0; i < 2; ++i) y = blocks[0](y);
    return head(forgotten(y));
  }
};

}  // namespace

TEST_CASE("summary lists shapes, counts, bytes and totals", "[host]") {
  const std::string expected = R"(Mlp, f32 cpu

module  type    parameters                       count      bytes
─────────────────────────────────────────────────────────────────
fc1     Linear  weight [512, 784], bias [512]  401,920   1.53 MiB
fc2     Linear  weight [512, 512], bias [512]  262,656   1.00 MiB
fc3     Linear  weight [10, 512], bias [10]      5,130  20.04 KiB
─────────────────────────────────────────────────────────────────
total                                          669,706   2.55 MiB
)";
  CHECK(Mlp().summary() == expected);
}

TEST_CASE("summary with an input shows every module's output shape", "[host]") {
  const std::string expected = R"(Mlp, f32 cpu: [1, 28, 28] -> [1, 10]

module  type    output    parameters                       count      bytes
───────────────────────────────────────────────────────────────────────────
fc1     Linear  [1, 512]  weight [512, 784], bias [512]  401,920   1.53 MiB
fc2     Linear  [1, 512]  weight [512, 512], bias [512]  262,656   1.00 MiB
fc3     Linear  [1, 10]   weight [10, 512], bias [10]      5,130  20.04 KiB
───────────────────────────────────────────────────────────────────────────
total                                                    669,706   2.55 MiB
)";
  CHECK(Mlp().summary({1, 28, 28}) == expected);
}

TEST_CASE("summary shows frozen, tied and forgotten parameters, buffers and repeated calls",
          "[host]") {
  const std::string expected = R"(Model, f32 cpu: [2, 16] -> [2, 16, 1000]

module           type       output           parameters                        count       bytes
────────────────────────────────────────────────────────────────────────────────────────────────
(self)           Model      [2, 16, 1000]    seen [1000] (buffer)              1,000    3.91 KiB
token_embedding  Embedding  [2, 16, 64]      weight [1000, 64]                64,000  250.00 KiB
blocks.0         Block      [2, 16, 64] ×2
blocks.0.norm    LayerNorm  [2, 16, 64] ×2   weight [64] (frozen)                128       512 B
                                             bias [64] (frozen)
blocks.0.up      Linear     [2, 16, 256] ×2  weight [256, 64] (frozen)        16,640   65.00 KiB
                                             bias [256] (frozen)
blocks.0.down    Linear     [2, 16, 64] ×2   weight [64, 256] (frozen)        16,448   64.25 KiB
                                             bias [64] (frozen)
blocks.0.drop    Dropout    [2, 16, 64] ×2
head             Linear     [2, 16, 1000]    weight = token_embedding.weight
────────────────────────────────────────────────────────────────────────────────────────────────
trainable                                                                     64,000  250.00 KiB
frozen                                                                        33,216  129.75 KiB
buffers                                                                        1,000    3.91 KiB
total                                                                         98,216  383.66 KiB
not a member: Linear(64, 64), 4,160 parameters; is it missing in FIRN_MEMBERS?
)";
  CHECK(Model().summary(zeros({2, 16}, i64)) == expected);
}

TEST_CASE("a summary leaves modes, gradients and the random stream as they were") {
  Model net;
  net.blocks[0].drop.eval();
  const RandomKey before = default_generator().get();
  net.summary(zeros({2, 16}, i64));
  CHECK(net.training());
  CHECK(net.blocks[0].up.training());
  CHECK_FALSE(net.blocks[0].drop.training());
  CHECK_FALSE(net.token_embedding.weight.grad().defined());
  CHECK(default_generator().get().offset == before.offset);
}

TEST_CASE("a summary whose trial run fails restores the modes and passes the error on") {
  Mlp net;
  net.fc2.eval();
  CHECK_THROWS_AS(net.summary({1, 7}), Error);
  CHECK(net.training());
  CHECK(net.fc1.training());
  CHECK_FALSE(net.fc2.training());
  CHECK_NOTHROW(net(zeros({1, 784})));
}

TEST_CASE("summaries of a single layer and of nothing", "[host]") {
  CHECK(nn::Linear(3, 4, {.dtype = f16}).summary({2, 3}) == R"(Linear, f16 cpu: [2, 3] -> [2, 4]

module  type    output  parameters               count  bytes
─────────────────────────────────────────────────────────────
(self)  Linear  [2, 4]  weight [4, 3], bias [4]     16   32 B
─────────────────────────────────────────────────────────────
total                                               16   32 B
)");
  CHECK(nn::ReLU().summary() == R"(ReLU

module  type  parameters  count  bytes
──────────────────────────────────────
(self)  ReLU
──────────────────────────────────────
total                         0    0 B
)");
}
