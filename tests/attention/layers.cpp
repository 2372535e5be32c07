// The layers of transformers: their numbers from the parts that they are made of, and a training.
#include <cmath>

#include "copying.h"
#include "reference.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Rng rng(seed);
  return make(rng.uniforms(shape.product(), -1, 1), shape, f32);
}

/// Columns [from, from + count) of a projection x wᵀ + bias as heads.
Tensor heads_of(const nn::Linear& l, const Tensor& x, std::int64_t from, std::int64_t count,
                std::int64_t d) {
  const Tensor y = linear(x, l.weight, l.bias);
  return transpose(
      reshape(slice(y, 2, from * d, (from + count) * d), {x.size(0), x.size(1), count, d}), 1, 2);
}

}  // namespace

TEST_CASE("MultiHeadAttention: self-attention is its projections around attention()") {
  manual_seed(1);
  nn::MultiHeadAttention layer(24, 4, {.key_heads = 2, .causal = true, .rope_theta = 100.0});
  CHECK(layer.num_parameters() == (24 + 1) * (4 + 2 + 2) * 6 + (24 + 1) * 24);
  const Tensor x = random_tensor({2, 7, 24}, 3);
  const Tensor lengths = tensor<std::int64_t>({7, 4}, {2});
  const Tensor y = layer(x, nn::SeenKeys{.lengths = lengths});
  const RopeOptions turn{.theta = 100};
  const Tensor q = rope(heads_of(*layer.qkv, x, 0, 4, 6), turn);
  const Tensor k = rope(heads_of(*layer.qkv, x, 4, 2, 6), turn);
  const Tensor v = heads_of(*layer.qkv, x, 6, 2, 6);
  const Tensor heads = attention(q, k, v, {.causal = true, .lengths = lengths});
  const Tensor want =
      linear(reshape(transpose(heads, 1, 2), {2, 7, 24}), layer.out.weight, layer.out.bias);
  expect_close("y", values_of(y), values_of(want), 1e-6);
  // A key that comes later changes nothing before it.
  const Tensor changed = x.clone();
  changed.slice(1, 6, 7).fill_(9);
  expect_same("causal", values_of(layer(x).slice(1, 0, 6)),
              values_of(layer(changed).slice(1, 0, 6)));
}

TEST_CASE("MultiHeadAttention: attention to a memory of another width") {
  manual_seed(2);
  nn::MultiHeadAttention layer(8, 2, {.head_width = 6, .memory_width = 10, .bias = false});
  CHECK(layer.num_parameters() == 8 * 12 + 10 * 24 + 12 * 8);
  const Tensor x = random_tensor({2, 3, 8}, 1), memory = random_tensor({2, 5, 10}, 2);
  const Tensor mask = make({1, 1, 0, 1, 1}, {5}, boolean);
  const Tensor y = layer(x, memory, nn::SeenKeys{.mask = mask});
  const Tensor heads =
      attention(heads_of(*layer.q, x, 0, 2, 6), heads_of(*layer.kv, memory, 0, 2, 6),
                heads_of(*layer.kv, memory, 2, 2, 6), {.mask = mask});
  const Tensor want = linear(reshape(transpose(heads, 1, 2), {2, 3, 12}), layer.out.weight);
  expect_close("y", values_of(y), values_of(want), 1e-6);
  CHECK(error_of([&] { layer(x); }).find("memory_width") != std::string::npos);
  nn::MultiHeadAttention self(8, 2);
  CHECK(error_of([&] { self(x, memory); }).find("memory_width") != std::string::npos);
}

TEST_CASE("MultiHeadAttention: dropout in training only, part of a Sequential, cloned, printed") {
  manual_seed(3);
  nn::MultiHeadAttention layer(8, 2, {.dropout = 0.5});
  const Tensor x = random_tensor({1, 6, 8}, 1);
  CHECK(values_of(layer(x)) != values_of(layer(x)));
  layer.eval();
  CHECK(values_of(layer(x)) == values_of(layer(x)));
  nn::Sequential net(nn::MultiHeadAttention(8, 2), nn::SwiGLU(8, 16));
  CHECK(net(x).shape() == x.shape());
  nn::MultiHeadAttention copy = nn::clone(layer);
  CHECK(values_of(copy(x)) == values_of(layer(x)));
  {
    const NoGrad guard;
    copy.qkv->weight.fill_(0);
  }
  CHECK(values_of(copy(x)) != values_of(layer(x)));
  CHECK(nn::MultiHeadAttention(8, 4, {.key_heads = 2, .causal = true}).extra_repr() ==
        "8, 4, key_heads = 2, causal = true");
  CHECK(nn::SwiGLU(8, 16).extra_repr() == "8, 16");
  CHECK(layer.named_parameters()[0].name == "qkv.weight");
}

TEST_CASE("MultiHeadAttention: sizes that do not fit are refused") {
  using nn::MultiHeadAttention;
  const auto refused = [](auto fn, const char* part) {
    const std::string message = error_of(fn);
    INFO(message);
    CHECK(message.find("MultiHeadAttention") != std::string::npos);
    CHECK(message.find(part) != std::string::npos);
  };
  refused([] { MultiHeadAttention(0, 2); }, "width = 0");
  refused([] { MultiHeadAttention(8, 0); }, "heads = 0");
  refused([] { MultiHeadAttention(8, 3); }, "no multiple of heads = 3");
  refused([] { MultiHeadAttention(8, 4, {.key_heads = 3}); }, "key_heads = 3");
  refused([] { MultiHeadAttention(8, 4, {.key_heads = -1}); }, "key_heads = -1");
  refused([] { MultiHeadAttention(8, 4, {.dropout = 1}); }, "dropout = 1");
  refused([] { MultiHeadAttention(12, 4, {.rope_theta = 1e4}); }, "head_width = 3 is odd");
  refused([] { MultiHeadAttention(8, 4, {.rope_theta = std::nan("")}); }, "rope_theta = nan");
  refused([] { MultiHeadAttention(8, 4, {.rope_theta = 1e-100}); }, "rope_theta = 1e-100");
  refused([] { MultiHeadAttention(8, 4, {.window = -3}); }, "window = -3");
  refused([] { MultiHeadAttention(8, 4, {.dtype = i64}); }, "dtype = i64");
  refused([] { MultiHeadAttention(8, 4, {.memory_width = 8, .rope_theta = 1e4}); }, "both set");
  refused([] { MultiHeadAttention(8, 4)(ones({3, 8})); }, "[batch, n, width]");
}

TEST_CASE("SwiGLU is down(silu(gate(x)) up(x))") {
  manual_seed(4);
  nn::SwiGLU layer(6, 10, {.bias = true});
  const Tensor x = random_tensor({3, 6}, 1);
  const Tensor hidden = silu(layer.gate(x)) * layer.up(x);
  expect_close("y", values_of(layer(x)), values_of(layer.down(hidden)), 1e-6);
}

TEST_CASE("a small transformer learns to copy the token before the last, in f32 and bf16",
          "[long]") {
  struct Net : nn::Module {
    nn::Embedding token{6, 16};
    nn::MultiHeadAttention attention{16, 2, {.causal = true, .rope_theta = 100.0}};
    nn::RMSNorm norm{16};
    nn::SwiGLU feed{16, 32};
    nn::Linear head{16, 6};
    FIRN_MEMBERS(token, attention, norm, feed, head)
    Tensor forward(const Tensor& x) override {
      const Tensor h = token(x);
      const Tensor a = h + attention(h);
      return head(a + feed(norm(a)));
    }
  };
  for (const DType dtype : {f32, bf16}) {
    manual_seed(5);
    Net net;
    optim::Adam opt(net.parameters(), {.lr = 1e-2});
    CHECK(learn_to_copy(net, opt, 120, dtype) < 0.5);  // without the token before: log 6 = 1.79
  }
}

}  // namespace firn::testing
