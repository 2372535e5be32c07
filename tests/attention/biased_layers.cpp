// Layers whose scores have a bias: T5's relative positions from a table that is trained, ALiBi in
// 16 bits, checkpoints, and autocast.
#include <cmath>

#include "copying.h"
#include "reference.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype = f32) {
  Rng rng(seed);
  return make(rng.uniforms(shape.product(), -1, 1), shape, dtype);
}

/// attention() by matmul, softmax and matmul: q, k, v and bias in f64.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  return matmul(softmax(matmul(q, transpose(k, -1, -2)) * scale + bias), v);
}

/// [n, n], i64: the row of the table for the distance of a query and a key, up to `far`.
Tensor rows_of_table(std::int64_t n, std::int64_t far) {
  const Tensor places = arange(n, f32);
  const double most = static_cast<double>(far);
  return (clamp(unsqueeze(places, 0) - unsqueeze(places, 1), -most, most) + most).to(i64);
}

/// Self-attention with T5's relative positions: a row of the table for each distance, a column for
/// each head.
struct RelativeAttention : nn::ModuleOf<RelativeAttention> {
  RelativeAttention(std::int64_t width, std::int64_t heads, std::int64_t farthest)
      : far(farthest), table(2 * farthest + 1, heads), attend(width, heads) {
    const NoGrad guard;
    table.weight.fill_(0);
  }
  Tensor bias(std::int64_t n) const {
    return permute(embedding(table.weight, rows_of_table(n, far)), {2, 0, 1});
  }
  Tensor forward(const Tensor& x) override {
    return attend(x, nn::SeenKeys{.bias = bias(x.size(1))});
  }
  FIRN_MEMBERS(table, attend)

  std::int64_t far;
  nn::Embedding table;
  nn::MultiHeadAttention attend;
};

struct Net : nn::Module {
  nn::Embedding token{6, 16};
  RelativeAttention attention{16, 2, 4};
  nn::Linear head{16, 6};
  FIRN_MEMBERS(token, attention, head)
  Tensor forward(const Tensor& x) override {
    const Tensor h = token(x);
    return head(h + attention(h));
  }
};

}  // namespace

TEST_CASE("MultiHeadAttention: a bias of the scores goes to attention()") {
  manual_seed(2);
  nn::MultiHeadAttention self(8, 2), cross(8, 2, {.memory_width = 10});
  const Tensor x = random_tensor({2, 3, 8}, 1), memory = random_tensor({2, 5, 10}, 2);
  const auto heads_of = [](const Tensor& y, std::int64_t from) {
    const Tensor part = slice(y, 2, from * 4, (from + 2) * 4);
    return transpose(reshape(part, {y.size(0), y.size(1), 2, 4}), 1, 2);
  };
  const auto joined = [](const Tensor& heads) {
    return reshape(transpose(heads, 1, 2), {heads.size(0), heads.size(2), 8});
  };
  const Tensor square_bias = random_tensor({2, 3, 3}, 3),
               wide_bias = random_tensor({2, 1, 1, 5}, 4);
  const Tensor qkv = (*self.qkv)(x), q = (*cross.q)(x), kv = (*cross.kv)(memory);
  const Tensor want = self.out(joined(
      attention(heads_of(qkv, 0), heads_of(qkv, 2), heads_of(qkv, 4), {.bias = square_bias})));
  expect_close("self", values_of(self(x, nn::SeenKeys{.bias = square_bias})), values_of(want),
               1e-6);
  const Tensor crossed = cross.out(
      joined(attention(heads_of(q, 0), heads_of(kv, 0), heads_of(kv, 2), {.bias = wide_bias})));
  expect_close("memory", values_of(cross(x, memory, nn::SeenKeys{.bias = wide_bias})),
               values_of(crossed), 1e-6);
}

TEST_CASE(
    "T5: the table of relative positions gets the gradient of the composed form, over "
    "micro-steps") {
  manual_seed(3);
  Net net;
  {
    const NoGrad guard;
    net.attention.table.weight.copy_(random_tensor({9, 2}, 7));
  }
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  const Tensor inputs[] = {make({0, 1, 2, 3, 4, 5, 1}, {1, 7}, i64),
                           make({5, 5, 1, 0, 2, 3, 3}, {1, 7}, i64)};
  Tensor want = zeros({9, 2}, f64);
  for (const Tensor& x : inputs) {
    // The composed form in f64, by the same weights.
    const auto wide = [](const Tensor& t) { return t.detach().to(f64); };
    Net& n = net;
    const Tensor table = wide(n.attention.table.weight).set_requires_grad();
    const Tensor h = embedding(wide(n.token.weight), x);
    nn::MultiHeadAttention& layer = n.attention.attend;
    const Tensor qkv = linear(h, wide(layer.qkv->weight), wide(layer.qkv->bias));
    const auto heads_of = [&](std::int64_t from) {
      return transpose(reshape(slice(qkv, 2, from * 8, (from + 2) * 8), {1, 7, 2, 8}), 1, 2);
    };
    const Tensor heads = composed(heads_of(0), heads_of(2), heads_of(4),
                                  permute(embedding(table, rows_of_table(7, 4)), {2, 0, 1}));
    const Tensor y = h + linear(reshape(transpose(heads, 1, 2), {1, 7, 16}), wide(layer.out.weight),
                                wide(layer.out.bias));
    const Tensor logits = linear(y, wide(n.head.weight), wide(n.head.bias));
    cross_entropy(logits, x, {.axis = 2}).sum.backward();
    want = want + table.grad();
    if (&x != inputs) opt.step();  // collects the micro-step before
    opt.backward(cross_entropy(net(x), x, {.axis = 2}));
  }
  CHECK(relative_error(values_of(net.attention.table.weight.grad()), values_of(want)) <= 2e-6);
  const std::vector<double> before = values_of(net.attention.table.weight);
  opt.step();
  CHECK(values_of(net.attention.table.weight) != before);
}

TEST_CASE("T5: relative positions learn to copy the token before, in f32 and bf16", "[long]") {
  for (const DType dtype : {f32, bf16}) {
    manual_seed(5);
    Net net;
    optim::Adam opt(net.parameters(), {.lr = 2e-2}, {.accumulate = 2});
    CHECK(learn_to_copy(net, opt, 400, dtype) <
          0.5);  // nothing else tells it the order: without the bias it stays near log 6
  }
}

TEST_CASE("T5: a checkpoint gives the table the same gradient, to the bit") {
  const auto gradients = [](bool again) {
    manual_seed(3);
    RelativeAttention layer(16, 2, 4);
    if (again) layer.set_checkpoint(CheckpointOptions());
    const Tensor x = random_tensor({2, 9, 16}, 4).set_requires_grad();
    square(layer(x)).sum().backward();
    return std::vector<std::vector<double>>{values_of(layer.table.weight.grad()),
                                            values_of(x.grad())};
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("ALiBi in 16 bits: a bias in f32 keeps its bits under autocast") {
  const std::int64_t heads = 4, n = 70;
  const Tensor places = arange(n, f32);
  const Tensor distance = abs(unsqueeze(places, 0) - unsqueeze(places, 1));
  const Tensor slopes = exp2(arange(1, heads + 1, f32) * -2.0).reshape({heads, 1, 1});
  const Tensor bias = distance * slopes * -1.0;
  const auto operand = [&](std::uint64_t seed) {
    return random_tensor({2, heads, n, 16}, seed).to(bf16).to(f32).set_requires_grad();
  };
  const Tensor q = operand(1), k = operand(2), v = operand(3);
  Tensor o;
  {
    const Autocast guard(bf16);
    const DtypeTrace trace;
    o = attention(q, k, v, {.causal = true, .bias = bias});
    CHECK(to_string(trace.ops().back()) == "attention bf16 bf16 bf16 f32 -> bf16");
  }
  const Tensor later = gt(unsqueeze(places, 0), unsqueeze(places, 1));
  const auto wide = [](const Tensor& t) { return t.detach().to(f64).set_requires_grad(); };
  const Tensor q64 = wide(q), k64 = wide(k), v64 = wide(v);
  const Tensor want = composed(q64, k64, v64, masked_fill(wide(bias), later, -HUGE_VAL));
  CHECK(relative_error(values_of(o), values_of(want)) <= 0.005);
  const Tensor seed = random_tensor(o.shape(), 5).to(bf16);
  backward(o, {.initial_gradient = seed});
  backward(want, {.initial_gradient = seed.to(f64)});
  CHECK(relative_error(values_of(q.grad()), values_of(q64.grad())) <= 0.01);
  CHECK(relative_error(values_of(k.grad()), values_of(k64.grad())) <= 0.01);
  CHECK(relative_error(values_of(v.grad()), values_of(v64.grad())) <= 0.01);
}

TEST_CASE("attention: under autocast a bias of 16 bits follows the guard's dtype") {
  const Tensor q = random_tensor({1, 2, 5, 4}, 1), k = random_tensor({1, 2, 6, 4}, 2);
  const Autocast guard(bf16);
  for (const DType dtype : {f32, bf16, f16}) {
    const Tensor bias = random_tensor({5, 6}, 3).to(dtype).detach().set_requires_grad();
    const DtypeTrace trace;
    const Tensor o = attention(q, k, k, {.bias = bias});
    CHECK(to_string(trace.ops().back()) ==
          std::string("attention bf16 bf16 bf16 ") + (dtype == f32 ? "f32" : "bf16") + " -> bf16");
    o.sum().backward();
    CHECK(bias.grad().dtype() == dtype);
  }
  CHECK(error_of([&] {
          attention(q, k, k, {.bias = zeros({5, 6}, f64)});
        }).find("bias [5, 6] f64") != std::string::npos);
}

TEST_CASE("attention: a second derivative through a bias is refused by name") {
  const Tensor q = random_tensor({1, 1, 3, 4}, 1);
  const Tensor bias = zeros({3, 3}).set_requires_grad();
  const Tensor o = attention(q, q, q, {.bias = bias}).sum();
  CHECK(error_of([&] { grad({o}, {bias}, {.create_graph = true}); }).find("attention") !=
        std::string::npos);
}

}  // namespace firn::testing
