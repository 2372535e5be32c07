// grad(): gradients as results, and gradients of gradients.
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values, const Shape& shape, DType dtype = f64) {
  return make(values, shape, dtype).set_requires_grad();
}
Tensor random_leaf(std::uint64_t seed, const Shape& shape, DType dtype = f64) {
  return leaf(Rng(seed).uniforms(shape.product(), -1, 1), shape, dtype);
}
void says(const std::string& part, const std::function<void()>& call) {
  const std::string text = error_of(call);
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("grad() equals backward(), and leaves no gradient behind") {
  const Tensor x = random_leaf(1, {3, 4}), w = random_leaf(2, {5, 4}), other = random_leaf(3, {2});
  const auto loss = [&] { return sum(tanh(linear(x, w))); };
  loss().backward();
  const Values dx = values_of(x.grad()), dw = values_of(w.grad());
  x.set_grad({});
  w.set_grad({});
  for (const bool create_graph : {false, true}) {
    const std::vector<Tensor> got = grad({loss()}, {w, x}, {.create_graph = create_graph});
    expect_close("dw", values_of(got[0].detach()), dw, 1e-14);
    expect_close("dx", values_of(got[1].detach()), dx, 1e-14);
    CHECK(got[0].requires_grad() == create_graph);
    CHECK_FALSE(x.grad().defined());
    CHECK_FALSE(w.grad().defined());
  }
  // Of an intermediate result, of two outputs, with seeds, and of an output itself.
  const Tensor h = tanh(linear(x, w)), y = sum(square(h), {1});
  const Tensor seed = make({1, 2, 3}, {3}, f64);
  for (const bool create_graph : {false, true}) {
    const std::vector<Tensor> got =
        grad({y, sum(h)}, {h, y},
             {.initial_gradients = {seed, {}}, .create_graph = create_graph, .retain_graph = true});
    expect_close("dh", values_of(got[0].detach()),
                 values_of((2.0 * h * unsqueeze(seed, 1) + 1.0).detach()), 1e-14);
    expect_same("dy", values_of(got[1].detach()), {1, 2, 3});
    const std::vector<Tensor> twice = grad(
        {y, y}, {h},
        {.initial_gradients = {seed, seed}, .create_graph = create_graph, .retain_graph = true});
    expect_close("twice", values_of(twice[0].detach()),
                 values_of((4.0 * h * unsqueeze(seed, 1)).detach()), 1e-14);
    const std::vector<Tensor> none =
        grad({sum(y)}, {other, x},
             {.create_graph = create_graph, .retain_graph = true, .allow_unused = true});
    CHECK_FALSE(none[0].defined());
    CHECK(none[1].defined());
  }
}

TEST_CASE("grad() refuses what has no answer, naming it", "[host]") {
  const Tensor x = random_leaf(1, {3}), z = random_leaf(2, {3});
  const Tensor y = sum(square(x));
  says("no output was computed from input 0", [&] { grad({y}, {z}, {.retain_graph = true}); });
  says("input 0, [3] f64 cpu, requires no gradient", [&] { grad({y}, {zeros({3}, f64)}); });
  says("output 0, [] f64 cpu, requires no gradient", [&] { grad({y.detach()}, {x}); });
  says("is not a scalar", [&] { grad({square(x)}, {x}); });
  says("1 initial gradients for 2 outputs", [&] {
    grad({y, y}, {x}, {.initial_gradients = {Tensor()}});
  });
  says("0 outputs and 1 inputs", [&] { grad({}, {x}); });
  says("initial gradient [2] f64 cpu for output [] f64 cpu",
       [&] { grad({y}, {x}, {.initial_gradients = {zeros({2}, f64)}}); });
  says("median has no second derivative", [&] { grad({median(x)}, {x}, {.create_graph = true}); });
  grad({y}, {x});
  says("an earlier backward() freed", [&] { grad({y}, {x}); });
  says("an earlier backward() freed", [&] { grad({y}, {x}, {.create_graph = true}); });
  const Tensor kept = checkpoint([](const Tensor& t) { return exp(t); }, x);
  says("recorded by checkpoint()", [&] { grad({sum(kept)}, {x}, {.create_graph = true}); });
  // In place since: as backward().
  const Tensor a = random_leaf(4, {3}), b = mul(a, 2.0), product = sum(b * b);
  fill_(b.detach(), 1);
  says("modified in place", [&] { grad({product}, {a}, {.create_graph = true}); });
}

TEST_CASE("a Hessian times a vector equals the difference quotient of gradients") {
  const Tensor x = random_leaf(5, {4, 3});
  nn::MLP net({3, 6, 6, 1}, {.activation = Activation::gelu_tanh, .dtype = f64});
  const std::vector<Tensor> w = net.parameters();
  const auto loss = [&] { return mean(square(net(x))); };
  std::vector<Tensor> v;
  for (std::size_t i = 0; i < w.size(); ++i)
    v.push_back(make(Rng(i + 9).uniforms(w[i].numel(), -1, 1), w[i].shape()));
  const std::vector<Tensor> first = grad({loss()}, w, {.create_graph = true});
  Tensor along = zeros({}, f64);
  for (std::size_t i = 0; i < w.size(); ++i) along = along + sum(first[i] * v[i]);
  const std::vector<Tensor> product = grad({along}, w);
  const double h = 1e-5;
  const auto moved = [&](double by) {
    {
      const NoGrad guard;
      for (std::size_t i = 0; i < w.size(); ++i) copy_(w[i], w[i] + by * v[i]);
    }
    return grad({loss()}, w);
  };
  const std::vector<Tensor> up = moved(h), down = moved(-2 * h);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Values want = values_of((up[i] - down[i]) / (2 * h));
    expect_close("parameter " + std::to_string(i), values_of(product[i]), want,
                 1e-6 * (1 + largest(want)));
  }
}

TEST_CASE("derivatives of any order") {
  const Tensor x = leaf({0.3, -1.2, 2}, {3});
  Tensor y = sum(sin(x) * exp(x));
  // (sin x e^x)'' = 2 cos x e^x, and the fourth derivative is -4 sin x e^x.
  for (int order = 1; order <= 4; ++order) {
    y = grad({y}, {x}, {.create_graph = true})[0];
    if (order % 2 == 1) {
      y = sum(y);
      continue;
    }
    const Tensor t = x.detach();
    const Tensor want = order == 2 ? 2.0 * cos(t) * exp(t) : -4.0 * sin(t) * exp(t);
    expect_close("order " + std::to_string(order), values_of(y.detach()), values_of(want), 1e-12);
    y = sum(y);
  }
}

TEST_CASE("a gradient penalty trains a critic with convolutions") {
  manual_seed(2);
  struct Critic : nn::Module {
    nn::Conv2d conv{1, 4, 3, {.stride = 2, .padding = 1, .activation = Activation::relu}};
    nn::LayerNorm norm{64};
    nn::Linear head{64, 1};
    FIRN_MEMBERS(conv, norm, head)
    Tensor forward(const Tensor& x) override { return head(silu(norm(flatten(conv(x), 1)))); }
  } critic;
  optim::Adam opt(critic.named_parameters(), {.lr = 0.01});
  const Tensor x = make(Rng(3).uniforms(8 * 64, -1, 1), {8, 1, 8, 8}, f32).set_requires_grad();
  const auto penalty = [&] {
    const Tensor slope = grad({sum(critic(x))}, {x}, {.create_graph = true})[0];
    return mean(square(norm(flatten(slope, 1), 1) - 1.0));
  };
  const double before = penalty().item();
  for (int i = 0; i < (on_slow_device() ? 2 : 40); ++i) {
    opt.backward(penalty());
    opt.step();
  }
  const double after = penalty().item();
  INFO(before << " -> " << after);
  CHECK(after < (on_slow_device() ? before : 0.1 * before));
}

TEST_CASE("one step inside of another is differentiated through (MAML)") {
  // Two steps of gradient descent on a parabola: the gradient of the loss after them is known.
  const Tensor w = leaf({3}, {});
  const double a = 2, lr = 0.1;
  Tensor now = w;
  for (int step = 0; step < 2; ++step) {
    const Tensor slope = grad({0.5 * a * square(now)}, {now}, {.create_graph = true})[0];
    now = now - lr * slope;
  }
  const Tensor loss = 0.5 * a * square(now);
  loss.backward();
  const double shrink = (1 - lr * a) * (1 - lr * a);
  CHECK(std::fabs(w.grad().item() - a * 3 * shrink * shrink) < 1e-12);
}

TEST_CASE("grad() beside hooks, Freeze and autocast") {
  const Tensor x = random_leaf(6, {4}), w = random_leaf(7, {4});
  const Tensor h = x * w;
  add_hook(h, [](const Tensor& g) { return g * 2.0; });
  for (const bool create_graph : {false, true}) {
    const Tensor dx = grad({sum(h)}, {x}, {.create_graph = create_graph, .retain_graph = true})[0];
    expect_same("hook", values_of(dx.detach()), values_of((2.0 * w).detach()));
  }
  {
    const Freeze guard({w});
    const Tensor y = sum(square(x) * w);
    expect_close("frozen", values_of(grad({y}, {x}, {.create_graph = true})[0].detach()),
                 values_of((2.0 * x * w).detach()), 1e-14);
    says("requires no gradient", [&] { grad({y}, {w}); });
  }
  const Tensor a = random_leaf(8, {3, 3}, f32), b = random_leaf(9, {3, 3}, f32);
  Tensor y;
  {
    const Autocast guard(bf16);
    y = sum(square(matmul(a, b)));
  }
  const Tensor da = grad({y}, {a}, {.create_graph = true})[0];
  CHECK(da.dtype() == f32);
  const Tensor dda = grad({sum(da * da)}, {a})[0];
  CHECK(dda.dtype() == f32);
  // 2 a b bᵀ, and the square of its norm has the gradient 8 a (b bᵀ)².
  const Tensor gram = matmul(b.detach(), transpose(b.detach(), 0, 1));
  const Values want = values_of(8.0 * matmul(matmul(a.detach(), gram), gram));
  expect_close("second", values_of(dda), want, 0.05 * (1 + largest(want)));
}

TEST_CASE("hooks in grad() are checked as those of backward()", "[host]") {
  for (const bool create_graph : {false, true}) {
    const Tensor x = random_leaf(1, {3}), y = x * 2.0;
    const int id = add_hook(y, [](const Tensor& g) {
      g.detach().fill_(0);
      return Tensor();
    });
    const GradOptions options{.create_graph = create_graph, .retain_graph = true};
    says("wrote its gradient in place", [&] { grad({sum(square(y))}, {x}, options); });
    remove_hook(y, id);
    // One that is added in a pass runs from the next one on.
    add_hook(y, [&y](const Tensor&) {
      add_hook(y, [](const Tensor& g) { return g * 10.0; });
      return Tensor();
    });
    CHECK(grad({sum(y)}, {x}, options)[0].detach().select(0, 0).item() == 2);
    CHECK(grad({sum(y)}, {x}, options)[0].detach().select(0, 0).item() == 20);
  }
}

TEST_CASE("grad() with create_graph frees the graph if it is told to, as PyTorch does") {
  const Tensor x = random_leaf(1, {3});
  const auto slope = [&](std::optional<bool> retain) {
    const Tensor h = exp(x), y = sum(h * h * h);
    Tensor dx = grad({y}, {x}, {.create_graph = true, .retain_graph = retain})[0];
    return std::pair(y, dx);
  };
  const auto [y, dx] = slope(false);
  const auto [kept, want] = slope({});
  expect_same("dx", values_of(dx.detach()), values_of(want.detach()));
  CHECK(dx.requires_grad());
  says("an earlier backward() freed", [y = y] { backward(y); });
  says("an earlier backward() freed", [&x, dx = dx] { grad({sum(dx)}, {x}); });
  CHECK_NOTHROW(grad({sum(want)}, {x}, {.retain_graph = true}));
  CHECK_NOTHROW(backward(kept));
}

TEST_CASE("threads have gradients of one model at once", "[host]") {
  manual_seed(1);
  const nn::Linear net(64, 64);
  const Tensor x = random_leaf(1, {32, 64}, f32);
  const auto of = [&](bool create_graph) {
    const Tensor y = sum(square(linear(x, net.weight, net.bias)));
    return values_of(grad({y}, {net.weight}, {.create_graph = create_graph})[0].detach());
  };
  const Values want = of(false);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int i = 0; i < 40; ++i) wrong[t] += of(t == 3) != want;
      } catch (const Error&) {
        wrong[t] += 1000;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("grad() leaves the statistics of an optimizer's cycle alone") {
  const auto train = [](bool penalty) {
    nn::BatchNorm1d norm(3, {.accumulation = nn::BatchNormMode::per_step});
    optim::SGD opt(norm.named_parameters(), {.lr = 0.1});
    const Tensor x = make(Rng(4).uniforms(8 * 3, 0, 2), {8, 3}, f32);
    opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
      const Tensor part = clone(slice(x, 0, first, last)).set_requires_grad();
      const Tensor y = norm(part);
      if (penalty) grad({sum(square(y))}, {part}, {.create_graph = true});
      return mse_loss(y, zeros({4, 3}));
    });
    return values_of(norm.running_mean);
  };
  expect_same("running mean", train(true), train(false));
}

}  // namespace firn::testing
