// What runs once, what runs twice, and what is refused.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recompute/models.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

/// The gradient of sum(y * y) with respect to `x`.
std::vector<double> gradient(const Tensor& y, const Tensor& x) {
  x.set_grad({});
  backward((y * y).sum());
  return values_of(x.grad());
}

Tensor input(std::uint64_t seed = 7) {
  Generator g(seed);
  return randn({4, 8}, {.generator = &g}).set_requires_grad();
}

}  // namespace

TEST_CASE("recompute: several inputs and results, and what is captured", "[recompute]") {
  const Tensor x = input(1), z = input(2), w = input(3);
  const auto f = [&w](const Tensor& a, const Tensor& b) {
    const Tensor c = tanh(a * b + w);
    return std::pair(exp(c) * a, sigmoid(c + b));
  };
  const auto gradients = [&](const std::pair<Tensor, Tensor>& y) {
    for (const Tensor& t : {x, z, w}) t.set_grad({});
    backward((y.first * y.second + y.first).sum());
    std::vector<double> all;
    for (const Tensor& t : {x, z, w})
      for (const double v : values_of(t.grad())) all.push_back(v);
    return all;
  };
  const auto plain = gradients(f(x, z));
  CHECK(gradients(checkpoint(f, x, z)) == plain);
  CHECK(gradients(checkpoint({.keep = Keep::products}, f, x, z)) == plain);
  // A result that is not used, and one that is an input.
  const auto first = [&f](const Tensor& a, const Tensor& b) {
    return std::tuple(f(a, b).first, b);
  };
  const auto [y, same] = checkpoint(first, x, z);
  CHECK(same.impl() == z.impl());
  CHECK(gradient(y, x) == gradient(f(x, z).first, x));
}

TEST_CASE("recompute: results are freed in any order, used or not", "[recompute]") {
  const Tensor x = input();
  Tensor kept;
  {
    const Tensor lost = checkpoint([](const Tensor& t) { return exp(tanh(t)) * t; }, x);
    kept = checkpoint([](const Tensor& t) { return tanh(exp(t)); }, lost + x);
  }
  CHECK(gradient(kept, x) == gradient(tanh(exp(exp(tanh(x)) * x + x)), x));
}

TEST_CASE("recompute: a Loss, nothing at all, and no gradient", "[recompute]") {
  const Tensor x = input(), y = zeros({4}, i64);
  x.set_grad({});
  backward(checkpoint([&](const Tensor& t) { return cross_entropy(tanh(t), y); }, x).sum);
  const auto got = values_of(x.grad());
  x.set_grad({});
  backward(cross_entropy(tanh(x), y).sum);
  CHECK(got == values_of(x.grad()));

  int calls = 0;
  checkpoint([&calls] { ++calls; });
  const Tensor plain = checkpoint([](const Tensor& t) { return exp(t); }, x.detach());
  CHECK_FALSE(plain.requires_grad());
  {
    const NoGrad guard;
    CHECK_FALSE(checkpoint([](const Tensor& t) { return exp(t); }, x).requires_grad());
  }
  CHECK(calls == 1);
}

TEST_CASE("recompute: the graph can be kept, and every pass computes again", "[recompute]") {
  const Tensor x = input();
  int calls = 0;
  const auto f = [&calls](const Tensor& t) {
    ++calls;
    return checkpoint([](const Tensor& u) { return exp(tanh(u)); }, tanh(t)) * t;
  };
  const Tensor y = checkpoint(f, x).sum();
  for (int pass = 1; pass <= 3; ++pass) {
    x.set_grad({});
    backward(y, {.retain_graph = pass < 3});
    CHECK(calls >= 1 + pass);
    const auto got = values_of(x.grad());
    x.set_grad({});
    backward((exp(tanh(tanh(x))) * x).sum());
    CHECK(got == values_of(x.grad()));
  }
  CHECK_THROWS_WITH(backward(y), test::contains("retain_graph"));
}

TEST_CASE("[S35] recompute: hooks run once, and what they put in stays", "[recompute]") {
  manual_seed(1);
  nn::Sequential net(nn::Linear(8, 8), nn::GELU(), nn::Linear(8, 8));
  const Tensor x = input();
  int seen = 0, replaced = 0, of_tensor = 0;
  net[0].add_forward_hook(
      [&](nn::Module&, const nn::CallTensors&, const nn::CallTensors&) { ++seen; });
  net[1].add_forward_hook([&](nn::Module&, const nn::CallTensors&, const nn::CallTensors& out) {
    ++replaced;
    out[0] = out[0] * 2.0 + static_cast<double>(replaced);
  });
  net[2].add_forward_pre_hook([&](nn::Module&, const nn::CallTensors& in) {
    ++replaced;
    in[0] = in[0] + 1.0;
  });
  const auto f = [&](const Tensor& t) {
    const Tensor h = net(t);
    add_hook(h, [&](const Tensor& g) {
      ++of_tensor;
      return g * 3.0;
    });
    return tanh(h * h);
  };
  const auto run = [&](bool again) {
    seen = replaced = of_tensor = 0;
    for (const Tensor& p : net.parameters()) p.set_grad({});
    auto g = gradient(again ? checkpoint(f, x) : f(x), x);
    for (const Tensor& p : net.parameters())
      for (const double v : values_of(p.grad())) g.push_back(v);
    CHECK(seen == 1);
    CHECK(replaced == 2);
    CHECK(of_tensor == 1);
    return g;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S35] recompute: modes and streams are those of the first pass", "[recompute]") {
  manual_seed(5);
  nn::Sequential net(nn::Linear(8, 8), nn::Dropout(0.5), nn::BatchNorm1d(8), nn::Linear(8, 8));
  const Tensor x = input();
  const auto run = [&](bool again) {
    manual_seed(6);
    net.train();
    Tensor y;
    {
      const Autocast guard(bf16);
      y = again ? checkpoint(net, x) : net(x);
    }
    net.eval();
    for (int i = 0; i < 10; ++i) randn({3});
    const RandomKey before = default_generator().get();
    auto g = gradient(y.to(f32), x);
    CHECK(default_generator().get().offset == before.offset);
    CHECK_FALSE(net.training());
    return g;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S36] recompute: a function that gives other values is refused by name", "[recompute]") {
  const Tensor x = input();
  double factor = 2;
  const auto refused = [&](const auto& f) {
    factor = 2;
    const Tensor y = checkpoint(f, x).sum();
    factor = 3;
    return error_of([&] {
      backward(y);
      synchronize(x.device());
    });
  };
  CHECK_THAT(refused([&](const Tensor& t) { return tanh(exp(t * factor)); }),
             test::contains("other values") && test::contains("exp"));
  CHECK_THAT(refused([&](const Tensor& t) { return factor > 2 ? exp(tanh(t)) : tanh(exp(t)); }),
             test::contains("checkpoint") && test::contains("the second time"));
  CHECK_THAT(refused([&](const Tensor& t) {
               return exp(tanh(factor > 2 ? cat({t, t}, 0) : t)).sum();
             }),
             test::contains("the second time"));
  CHECK_THAT(refused([&](const Tensor& t) { return factor > 2 ? t : exp(tanh(t)); }),
             test::contains("ended before"));
  CHECK_THAT(refused([&](const Tensor& t) {
               return exp(dropout(tanh(t), 0.5, factor < 3) + dropout(t * factor, 0.5, true));
             }),
             test::contains("checkpoint"));
  // One number of 32 alone.
  CHECK_THAT(refused([&](const Tensor& t) {
               const Tensor one = zeros({4, 8});
               const NoGrad guard;
               fill_(one[2].slice(0, 3, 4), factor * 1e-6);
               const EnableGrad on;
               return exp(t + one);
             }),
             test::contains("other values"));
  // Integers and conditions are compared too.
  CHECK_THAT(refused([&](const Tensor& t) { return where(gt(t.detach(), factor - 2.5), t, 0.0); }),
             test::contains("other values"));
  CHECK_THAT(refused([&](const Tensor& t) {
               return gather(t, 1, full({4, 1}, factor, i64));
             }),
             test::contains("other values"));
  // Without the check nothing is compared but dtypes and shapes.
  factor = 2;
  const Tensor y = checkpoint(
                       {.check_values = false}, [&](const Tensor& t) { return exp(t * factor); }, x)
                       .sum();
  factor = 3;
  CHECK_NOTHROW(backward(y));
}

TEST_CASE("recompute: what is refused, and what is left after an error", "[recompute]") {
  const Tensor x = input();
  CHECK_THAT(error_of([&] {
               checkpoint(
                   [](const Tensor& t) {
                     const Tensor y = exp(t).sum();
                     backward(y);
                     return y;
                   },
                   x);
             }),
             test::contains("checkpoint()"));
  // In-place on what an operation of the function needs is refused at once, as without
  // checkpoint().
  const auto in_place = [](const Tensor& t) {
    Tensor y = exp(t);
    y *= 2.0;
    return y;
  };
  CHECK_THROWS_AS(in_place(x), Error);
  CHECK_THROWS_AS(checkpoint(in_place, x), Error);
  // A function that catches what is to end it has done its work.
  x.set_grad({});
  backward(checkpoint(
               [](const Tensor& t) {
                 try {
                   return exp(exp(t));
                 } catch (...) {
                   return t;
                 }
               },
               x)
               .sum());
  const auto caught = values_of(x.grad());
  x.set_grad({});
  backward(exp(exp(x)).sum());
  CHECK(caught == values_of(x.grad()));
  // A function that throws the second time: the third works.
  int calls = 0;
  const Tensor y = checkpoint(
                       [&calls](const Tensor& t) {
                         Tensor h = exp(tanh(t));
                         if (++calls == 2) throw Error("test", "the second call", "");
                         return exp(h);
                       },
                       x)
                       .sum();
  x.set_grad({});
  CHECK_THAT(error_of([&] { backward(y, {.retain_graph = true}); }),
             test::contains("the second call"));
  x.set_grad({});
  backward(y);
  const auto got = values_of(x.grad());
  x.set_grad({});
  backward(exp(exp(tanh(x))).sum());
  CHECK(got == values_of(x.grad()));
}

TEST_CASE("recompute: errors of the second pass name the module and the input", "[recompute]") {
  struct Failing : nn::Module {
    nn::Linear fc{8, 8};
    int calls = 0;
    FIRN_MEMBERS(fc)
    Tensor forward(const Tensor& x) override {
      if (++calls == 2) return matmul(x, zeros({3, 3}));
      return exp(fc(x));
    }
  };
  struct Outer : nn::Module {
    std::vector<Failing> blocks{2};
    FIRN_MEMBERS(blocks)
    Tensor forward(const Tensor& x) override { return blocks[1](x); }
  };
  const Tensor x = input();
  Outer net;
  net.blocks[1].set_checkpoint(CheckpointOptions{});
  const Tensor y = net(x).sum();
  try {
    backward(y);
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.op() == "matmul");
    CHECK_THAT(e.module(), test::contains("blocks.1"));
  }
  // The module is gone: its path is not.
  auto gone = std::make_unique<Outer>();
  gone->blocks[1].set_checkpoint(CheckpointOptions{});
  const Tensor lost = (*gone)(x).sum();
  gone.reset();
  CHECK_THAT(error_of([&] { backward(lost); }),
             test::contains("blocks.1") && test::contains("destroyed"));

  const Tensor a = randn({4, 8}), b = randn({4, 8});
  const Tensor z =
      checkpoint([](const Tensor& p, const Tensor& q, int) { return exp(p * q); }, input(), b, 3);
  b.mutable_view();  // a write, of the same values
  CHECK_NOTHROW(backward(z.sum()));
  const Tensor w =
      checkpoint([&](const Tensor& p, int, const Tensor& q) { return exp(p * 2.0 + q); }, a, 3,
                 input())
          .sum();
  {
    const NoGrad guard;
    fill_(a, 2.0);
  }
  if (default_device().is_cpu())
    CHECK_THAT(error_of([&] { backward(w); }),
               test::contains("input 0") && test::contains("fill_"));
}

TEST_CASE("recompute: a module may be moved, and not destroyed, before the backward pass",
          "[recompute]") {
  manual_seed(2);
  const Tensor x = input();
  auto first = std::make_unique<nn::Sequential>(nn::Linear(8, 8), nn::GELU(), nn::Linear(8, 8));
  const auto plain = gradient((*first)(x), x);
  first->set_checkpoint(CheckpointOptions{});
  const Tensor y = (*first)(x);
  const Tensor lost = (*first)(x);
  nn::Sequential moved(std::move(*first));
  first.reset();
  CHECK(gradient(y, x) == plain);
  { const nn::Sequential last(std::move(moved)); }
  CHECK_THAT(error_of([&] { gradient(lost, x); }), test::contains("destroyed"));
}

TEST_CASE("recompute: frozen leaves, custom functions and listeners", "[recompute]") {
  manual_seed(4);
  nn::Linear layer(8, 8);
  const Tensor x = input();
  const auto square = [](const Tensor& t) {
    Tensor y;
    {
      const NoGrad guard;
      y = t * t;
    }
    return custom("square", {t}, y, {t}, [](const CustomBackward& b) {
      return std::vector<Tensor>{2.0 * b.saved[0] * b.grad};
    });
  };
  const auto f = [&](const Tensor& t) { return tanh(square(layer(tanh(t)))); };
  const auto run = [&](bool again, bool frozen_before, bool frozen_after) {
    for (const Tensor& p : layer.parameters()) p.set_grad({});
    Tensor y;
    DtypeTrace trace;
    {
      std::optional<Freeze> freeze;
      if (frozen_before) freeze.emplace(layer.parameters());
      y = again ? checkpoint(f, x) : f(x);
    }
    const std::size_t ops = trace.ops().size();
    std::optional<Freeze> freeze;
    if (frozen_after) freeze.emplace(layer.parameters());
    auto g = gradient(y, x);
    CHECK(trace.ops().size() == ops + 2);  // the square and the sum of gradient()
    freeze.reset();
    for (const Tensor& p : layer.parameters())
      if (p.grad().defined())
        for (const double v : values_of(p.grad())) g.push_back(v);
    return g;
  };
  for (const bool before : {false, true})
    for (const bool after : {false, true})
      CHECK(run(true, before, after) == run(false, before, after));
}

TEST_CASE("recompute: activations are freed, and what is computed again counts by itself",
          "[recompute]") {
  manual_seed(1);
  Transformer net;
  std::vector<TransformerBlock>& blocks = net.blocks;
  const Tensor x = randn({8, 32, 16}).set_requires_grad();
  const auto peak = [&](const std::optional<CheckpointOptions>& o) {
    for (auto& b : blocks) b.set_checkpoint(o);
    const std::size_t before = memory_stats(x.device()).of(Owner::activations).current;
    Tensor h = x;
    for (auto& b : blocks) h = b(h);
    const std::size_t held = memory_stats(x.device()).of(Owner::activations).current - before;
    reset_peak_memory(x.device());
    h.sum().backward();
    const MemoryStats s = memory_stats(x.device());
    CHECK((s.of(Owner::recomputed).peak > 0) == o.has_value());
    CHECK(s.of(Owner::recomputed).current == 0);
    h = Tensor();
    CHECK(memory_stats(x.device()).of(Owner::activations).current == before);
    return held;
  };
  const std::size_t plain = peak({}), products = peak(CheckpointOptions{.keep = Keep::products}),
                    inputs = peak(CheckpointOptions{});
  CHECK(inputs < plain / 4);
  CHECK(products < plain * 7 / 10);
  CHECK(inputs < products);
}
