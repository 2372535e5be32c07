// Recording inside a backward pass: EnableGrad, and gradient checkpointing by custom().
#include <functional>
#include <optional>
#include <thread>

#include "autograd/leaf.h"
#include "firn/firn.h"

using namespace firn;
using namespace firn::testing;

namespace {

using Part = std::function<Tensor(const std::vector<Tensor>&)>;

/// As autograd.h shows it.
Tensor checkpoint(const Part& part, const std::vector<Tensor>& inputs) {
  Tensor y;
  {
    const NoGrad guard;
    y = part(inputs).detach();
  }
  return custom("checkpoint", inputs, y, inputs, [part](const CustomBackward& b) {
    std::vector<Tensor> again, grads;
    for (const Tensor& t : b.saved) again.push_back(t.detach().set_requires_grad());
    {
      const EnableGrad guard;
      backward(part(again), {.initial_gradient = b.grad});
    }
    for (const Tensor& t : again) grads.push_back(t.grad());
    return grads;
  });
}

/// Without a checkpoint.
Tensor direct(const Part& part, const std::vector<Tensor>& inputs) { return part(inputs); }
using How = Tensor (*)(const Part&, const std::vector<Tensor>&);

/// A residual layer of x, weight and bias.
Tensor layer(const std::vector<Tensor>& in) {
  return in[0] + gelu(linear(layer_norm(in[0]), in[1], in[2]));
}

struct Net {
  explicit Net(DType dtype = f32) {
    Rng rng(11);
    for (int i = 0; i < 3; ++i) {
      weights.push_back(make(rng.uniforms(36, -1, 1), {6, 6}, dtype).set_requires_grad());
      biases.push_back(make(rng.uniforms(6, -1, 1), {6}, dtype).set_requires_grad());
    }
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all = weights;
    all.insert(all.end(), biases.begin(), biases.end());
    return all;
  }
  Tensor run(const Tensor& x, How how) const {
    Tensor y = x;
    for (std::size_t i = 0; i < weights.size(); ++i) y = how(layer, {y, weights[i], biases[i]});
    return y;
  }
  /// Two layers in one checkpoint, each of which is one in there, too.
  Tensor run_nested(const Tensor& x, How inner, How outer) const {
    const Tensor y = outer(
        [inner](const std::vector<Tensor>& in) {
          const Tensor h = inner(layer, {in[0], in[1], in[2]});
          // One use of h: three gradients added in another order have other last bits.
          return tanh(inner(layer, {h, in[3], in[4]}));
        },
        {x, weights[0], biases[0], weights[1], biases[1]});
    return outer(layer, {y, weights[2], biases[2]});
  }

  std::vector<Tensor> weights, biases;
};

Tensor batch(std::uint64_t seed, DType dtype = f32) {
  return make(Rng(seed).uniforms(5 * 6, -1, 1), {5, 6}, dtype);
}

/// The gradients of x and of all parameters after backward() of what `run` makes of them.
std::vector<Values> gradients(DType dtype, const std::function<Tensor(const Net&, Tensor)>& run) {
  const Net net(dtype);
  const Tensor x = batch(3, dtype).set_requires_grad();
  sum(square(run(net, x))).backward();
  std::vector<Values> all{values_of(x.grad())};
  for (const Tensor& p : net.parameters()) all.push_back(values_of(p.grad()));
  return all;
}

}  // namespace

TEST_CASE("EnableGrad: records inside NoGrad, nests with it, and is of its thread", "[autograd]") {
  const Tensor x = leaf({2});
  {
    const NoGrad off;
    {
      const EnableGrad on;
      CHECK((x * 2).requires_grad());
      {
        const NoGrad again;
        CHECK_FALSE((x * 2).requires_grad());
        const EnableGrad inner;
        CHECK(grad_enabled());
      }
      CHECK(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
    const EnableGrad on;
    bool elsewhere = false;
    std::thread([&] {
      const NoGrad of_that_thread;
      elsewhere = grad_enabled();
    }).join();
    CHECK_FALSE(elsewhere);
  }
  CHECK(grad_enabled());
  const EnableGrad outside;
  CHECK(grad_enabled());
}

TEST_CASE("EnableGrad: a hook runs a backward() of its own", "[autograd]") {
  const Tensor x = leaf({2, 3});
  const Tensor y = x * x;
  Values inner;
  add_hook(y, [&](const Tensor& g) {
    CHECK_FALSE(grad_enabled());
    const EnableGrad guard;
    const Tensor z = g.detach().set_requires_grad();
    sum(z * z * z).backward();
    inner = values_of(z.grad());
    return z * 1.0;  // has a graph, which goes no further
  });
  add_hook(y, [&](const Tensor& g) {
    CHECK_FALSE(g.requires_grad());
    return Tensor();
  });
  backward(y, {.initial_gradient = make({5, 7}, {2})});
  CHECK(inner == Values{75, 147});
  CHECK(values_of(x.grad()) == Values{20, 42});
  CHECK(grad_enabled());
}

TEST_CASE("EnableGrad: an error on the way restores what was before", "[autograd]") {
  const Tensor x = leaf({2});
  const Tensor y = x * 2;
  add_hook(y, [](const Tensor& g) -> Tensor {
    const EnableGrad guard;
    return g + ones({7}, f64);
  });
  CHECK_THROWS_AS(y.sum().backward(), Error);
  CHECK(grad_enabled());
  const NoGrad off;
  CHECK_THROWS_AS((x * 2).backward(), Error);
  CHECK_FALSE(grad_enabled());
}

TEST_CASE(
    "backward() of something unrecorded says what records it: outside of NoGrad, or EnableGrad",
    "[autograd]") {
  const Tensor x = leaf({2});
  CHECK(holds(error_of([&] { sum(x.detach()).backward(); }), "outside of NoGrad"));
  const Tensor y = x * 2;
  std::string inside;
  add_hook(y, [&](const Tensor& g) {
    inside = error_of([&] { sum(g.detach().set_requires_grad() * 2).backward(); });
    return Tensor();
  });
  y.sum().backward();
  CHECK(holds(inside, "requires no gradient; hint: recording is off in a backward pass"));
  CHECK(holds(inside, "EnableGrad"));
  CHECK_FALSE(holds(inside, "NoGrad"));
}

TEST_CASE("checkpoints give the gradients of the graph without them, to the bit", "[autograd]") {
  for (const DType dtype : {f32, f64}) {
    const auto plain =
        gradients(dtype, [](const Net& n, const Tensor& x) { return n.run(x, direct); });
    const auto again =
        gradients(dtype, [](const Net& n, const Tensor& x) { return n.run(x, checkpoint); });
    CHECK(plain == again);
  }
  for (const DType lower : {f16, bf16}) {
    const auto cast = [lower](How how) {
      return gradients(f32, [lower, how](const Net& n, const Tensor& x) {
        const Autocast guard(lower);
        return n.run(x, how);
      });
    };
    CHECK(cast(direct) == cast(checkpoint));
    CHECK(cast(direct) !=
          gradients(f32, [](const Net& n, const Tensor& x) { return n.run(x, direct); }));
  }
}

TEST_CASE("checkpoints inside of checkpoints give the same bits", "[autograd]") {
  const auto run = [](How inner, How outer) {
    return gradients(f32,
                     [=](const Net& n, const Tensor& x) { return n.run_nested(x, inner, outer); });
  };
  const auto plain = run(direct, direct);
  CHECK(run(direct, checkpoint) == plain);
  CHECK(run(checkpoint, direct) == plain);
  CHECK(run(checkpoint, checkpoint) == plain);
}

TEST_CASE("a checkpoint under NoGrad is recorded no more than its part, and runs backward there",
          "[autograd]") {
  const Net net;
  const Tensor x = batch(3).set_requires_grad();
  Tensor y = sum(square(net.run(x, checkpoint)));
  {
    const NoGrad off;
    CHECK_FALSE(net.run(x, checkpoint).requires_grad());
    y.backward();  // of a graph that was recorded before
    CHECK_FALSE(grad_enabled());
  }
  const auto plain = gradients(f32, [](const Net& n, const Tensor& t) { return n.run(t, direct); });
  CHECK(values_of(x.grad()) == plain[0]);
  CHECK(values_of(net.weights[2].grad()) == plain[3]);
}

TEST_CASE("a checkpoint's part may capture parameters: their gradients arrive directly",
          "[autograd]") {
  const auto run = [](How how) {
    const Net net;
    const Tensor x = batch(3).set_requires_grad();
    Tensor y = x;
    for (std::size_t i = 0; i < 3; ++i)
      y = how(
          [&net, i](const std::vector<Tensor>& in) {
            return layer({in[0], net.weights[i], net.biases[i]});
          },
          {y});
    sum(square(y)).backward();
    std::vector<Values> all{values_of(x.grad())};
    for (const Tensor& p : net.parameters()) all.push_back(values_of(p.grad()));
    return all;
  };
  CHECK(run(direct) == run(checkpoint));
}

TEST_CASE("a checkpoint with dropout draws the same numbers if its stream is set back",
          "[autograd]") {
  const auto run = [](How how) {
    Tensor x = leaf(Rng(4).uniforms(64, -1, 1), f32);
    Generator stream(9);
    const RandomKey begin = stream.get();
    const Part part = [&](const std::vector<Tensor>& in) {
      stream.set(begin);
      const GeneratorScope scope(stream);
      return dropout(in[0] * in[0], 0.5);
    };
    sum(how(part, {x})).backward();
    return values_of(x.grad());
  };
  CHECK(run(direct) == run(checkpoint));
}

TEST_CASE("checkpoints train an optimizer's parameters to the same bits, over several micro-steps",
          "[autograd]") {
  // Sums of small integers are exact, whichever way the gradients of a cycle are added.
  const auto train = [](How how, DType dtype, bool nested) {
    const Part part = [](const std::vector<Tensor>& in) {
      return in[0] + relu(linear(in[0], in[1], in[2]));
    };
    const auto small = [dtype](std::uint64_t seed, const Shape& shape) {
      Rng rng(seed);
      std::vector<double> values;
      for (int i = 0; i < (shape.size() == 2 ? 16 : 4); ++i)
        values.push_back(static_cast<double>(rng.below(5)) - 2);
      return make(values, shape, dtype);
    };
    const Tensor w = small(1, {4, 4}).set_requires_grad(), v = small(2, {4, 4}).set_requires_grad(),
                 b = small(3, {4}).set_requires_grad(), c = small(4, {4}).set_requires_grad();
    optim::SGD opt({w, v, b, c}, {.lr = 0.25}, {.accumulate = 3});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensor x = small(10 + step, {4, 4});
      const Part both = [&](const std::vector<Tensor>& in) {
        return how(part, {how(part, {in[0], in[1], in[2]}), in[3], in[4]});
      };
      const std::vector<Tensor> all{x, w, b, v, c};
      const Tensor y = nested ? how(both, all) : both(all);
      opt.backward(sum(y * small(20 + step, {4, 4})).to(f32), 4);
      opt.step();
    }
    std::vector<Values> out;
    for (const Tensor& t : {w, v, b, c}) out.push_back(values_of(t));
    return out;
  };
  for (const DType dtype : {f32, f16, bf16}) {
    const auto plain = train(direct, dtype, false);
    CHECK(train(checkpoint, dtype, false) == plain);
    CHECK(train(checkpoint, dtype, true) == plain);
  }
}

TEST_CASE("an Error inside a custom function's backward names the function", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  Tensor y;
  {
    const NoGrad guard;
    y = x * 2;
  }
  const Tensor z = custom("snake", {x}, y, {x}, [](const CustomBackward& b) {
    return std::vector<Tensor>{b.grad * ones({2}, f64)};
  });
  const std::string text = error_of([&] { sum(z * z).backward(); });
  INFO(text);
  CHECK(text.starts_with("[mul] backward of snake: "));
  // In a checkpoint, the innermost function is named.
  const auto outer = checkpoint(
      [&](const std::vector<Tensor>& in) {
        return custom("inner", {in[0]}, make({1}, {1}), {}, [](const CustomBackward& b) {
          return std::vector<Tensor>{b.grad + ones({5}, f32)};
        });
      },
      {x});
  CHECK(error_of([&] { outer.sum().backward(); }).starts_with("[add] backward of inner: "));
}

TEST_CASE("custom: an output that was there before needs detach() or clone(), says the message",
          "[autograd]") {
  const Tensor x = leaf({1, 2});
  const auto identity = [](const Tensor& h, bool detached) {
    Tensor y;
    {
      const NoGrad guard;
      y = detached ? h.detach() : h;
    }
    return custom("same", {h}, y, {},
                  [](const CustomBackward& b) { return std::vector<Tensor>{b.grad * 3.0}; });
  };
  for (const Tensor& h : {x, x * 1.0}) {
    const std::string text = error_of([&] { identity(h, false); });
    INFO(text);
    CHECK(holds(text, "h.detach()"));
    CHECK(holds(text, "h.clone()"));
    identity(h, true).sum().backward();
  }
  CHECK(values_of(x.grad()) == Values{6, 6});
}
