// Losses that pass through the networks of two optimizers: a generator's through the discriminator,
// an actor's through the critic, and one that trains both. Weights are compared with gradients
// written out by hand in f64.
#include <array>
#include <vector>

#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::LossScale;
using optim::LossScaler;
using optim::SGD;
using optim::step_all;

constexpr double kRate = 0.1;

// ---- A GAN: generator x = G z with G [2, 2], discriminator score = d x with d [1, 2] ----

using Row = std::array<double, 2>;

struct GanReference {
  std::array<Row, 2> g{{{0.5, -0.25}, {0.75, 1}}};
  Row d{0.3, -0.6};

  Row generate(const Row& z) const {
    return {g[0][0] * z[0] + g[0][1] * z[1], g[1][0] * z[0] + g[1][1] * z[1]};
  }
  double score(const Row& x) const { return d[0] * x[0] + d[1] * x[1]; }

  // The discriminator's loss: (score(real) - 1)^2 + score(fake)^2, the generator's:
  // (score(fake) - 1)^2, each a mean over all samples.
  void step(const std::vector<Row>& real, const std::vector<Row>& noise) {
    std::array<Row, 2> dg{};
    Row dd{};
    for (const Row& r : real)
      for (std::size_t k = 0; k < 2; ++k) dd[k] += 2 * (score(r) - 1) * r[k];
    for (const Row& z : noise) {
      const Row x = generate(z);
      for (std::size_t k = 0; k < 2; ++k) {
        dd[k] += 2 * score(x) * x[k];
        for (std::size_t j = 0; j < 2; ++j) dg[k][j] += 2 * (score(x) - 1) * d[k] * z[j];
      }
    }
    const double n = static_cast<double>(noise.size());
    for (std::size_t k = 0; k < 2; ++k) {
      d[k] -= kRate * dd[k] / n;
      for (std::size_t j = 0; j < 2; ++j) g[k][j] -= kRate * dg[k][j] / n;
    }
  }
};

std::vector<Row> rows(Rng& rng, int n) {
  std::vector<Row> out;
  for (int i = 0; i < n; ++i) out.push_back({rng.uniform(-1, 1), rng.uniform(-1, 1)});
  return out;
}

// Rows [from, to), as a tensor.
Tensor tensor_of(const std::vector<Row>& rows, std::size_t from, std::size_t to) {
  std::vector<double> values;
  for (std::size_t i = from; i < to; ++i) values.insert(values.end(), {rows[i][0], rows[i][1]});
  return make(values, {static_cast<std::int64_t>(to - from), 2}, f64);
}

void check_near(const Tensor& t, const std::vector<double>& expected) {
  const std::vector<double> values = values_of(t);
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - expected[i]) <= 1e-12);
}

TEST_CASE("[S16] a GAN with accumulation and a shared scale trains as by hand") {
  for (const bool freezes : {false, true}) {
    CAPTURE(freezes);
    Rng rng(4);
    GanReference reference;
    Tensor wg = parameter({0.5, -0.25, 0.75, 1}, {2, 2}, f64);
    Tensor wd = parameter({0.3, -0.6}, {1, 2}, f64);
    const LossScaler scaler(LossScale::fixed(256));
    SGD g({wg}, {.lr = kRate}, {.accumulate = 2, .scaler = scaler});
    SGD d({wd}, {.lr = kRate}, {.accumulate = 2, .scaler = scaler});
    for (int cycle = 0; cycle < 3; ++cycle) {
      const std::vector<Row> real = rows(rng, 6), noise = rows(rng, 6);
      for (std::size_t at = 0; at < 6; at += 3) {
        const Tensor fake = linear(tensor_of(noise, at, at + 3), wg);
        const Tensor on_real = square(linear(tensor_of(real, at, at + 3), wd) - 1.0).sum();
        d.backward(on_real + square(linear(fake.detach(), wd)).sum(), 3);
        const Bits gradient = bits_of(wd.grad());
        if (freezes) {
          const Freeze guard(d.parameters());
          CHECK(!wd.requires_grad());
          g.backward(square(linear(fake, wd) - 1.0).sum(), 3);
        } else {
          g.backward(square(linear(fake, wd) - 1.0).sum(), 3);
        }
        CHECK(bits_of(wd.grad()) == gradient);
        const auto reports = step_all({&g, &d});
        CHECK(reports[0].applied() == (at == 3));
        CHECK(reports[1].applied() == (at == 3));
      }
      reference.step(real, noise);
      check_near(wd, {reference.d[0], reference.d[1]});
      check_near(wg, {reference.g[0][0], reference.g[0][1], reference.g[1][0], reference.g[1][1]});
    }
  }
}

// ---- Actor and critic: action = a s, value = c0 s + c1 action ----

struct ActorCritic {
  double a = 0.5, c0 = 0.25, c1 = -0.75;
  double value(double s, double action) const { return c0 * s + c1 * action; }
};

Tensor value_of(const Tensor& critic, const Tensor& state, const Tensor& action) {
  return linear(cat({state, action}, 1), critic);
}

TEST_CASE("an actor's loss passes through the critic, which learns from its own loss alone") {
  ActorCritic reference;
  Tensor actor = parameter({0.5}, {1, 1}, f64), critic = parameter({0.25, -0.75}, {1, 2}, f64);
  SGD a({actor}, {.lr = kRate}, {.accumulate = 2}), c({critic}, {.lr = kRate}, {.accumulate = 2});
  Rng rng(9);
  for (int cycle = 0; cycle < 3; ++cycle) {
    double da = 0, dc0 = 0, dc1 = 0;
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
      const std::vector<double> s = rng.uniforms(4, -1, 1), played = rng.uniforms(4, -1, 1),
                                target = rng.uniforms(4, -1, 1);
      const Tensor state = make(s, {4, 1}, f64);
      const Tensor error =
          value_of(critic, state, make(played, {4, 1}, f64)) - make(target, {4, 1}, f64);
      // The actor's backward comes first, in mid-cycle of the critic and before its first one.
      a.backward(-value_of(critic, state, linear(state, actor)).sum(), 4);
      c.backward(square(error).sum(), 4);
      for (std::size_t i = 0; i < 4; ++i) {
        const double e = reference.value(s[i], played[i]) - target[i];
        dc0 += 2 * e * s[i];
        dc1 += 2 * e * played[i];
        da -= reference.c1 * s[i];
      }
      a.step();
      c.step();
    }
    reference.a -= kRate * da / 8;
    reference.c0 -= kRate * dc0 / 8;
    reference.c1 -= kRate * dc1 / 8;
    CHECK(a.last_report().applied());
    CHECK(c.last_report().applied());
    check_near(actor, {reference.a});
    check_near(critic, {reference.c0, reference.c1});
  }
}

TEST_CASE("one loss trains the networks of two optimizers: backward() of each, one retains") {
  ActorCritic reference;
  Tensor actor = parameter({0.5}, {1, 1}, f64), critic = parameter({0.25, -0.75}, {1, 2}, f64);
  const LossScaler scaler(LossScale::fixed(64));
  SGD a({actor}, {.lr = kRate}, {.scaler = scaler}), c({critic}, {.lr = kRate}, {.scaler = scaler});
  const std::vector<double> s{0.5, -1, 2}, target{1, 0.25, -0.5};
  const Tensor state = make(s, {3, 1}, f64), targets = make(target, {3, 1}, f64);
  for (int step = 0; step < 3; ++step) {
    const Tensor value = value_of(critic, state, linear(state, actor));
    const Loss loss = mse_loss(value, targets);
    a.backward(loss, {.retain_graph = true});
    c.backward(loss);
    step_all({&a, &c});
    double da = 0, dc0 = 0, dc1 = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const double action = reference.a * s[i];
      const double e = 2 * (reference.value(s[i], action) - target[i]) / 3;
      da += e * reference.c1 * s[i];
      dc0 += e * s[i];
      dc1 += e * action;
    }
    reference.a -= kRate * da;
    reference.c0 -= kRate * dc0;
    reference.c1 -= kRate * dc1;
    check_near(actor, {reference.a});
    check_near(critic, {reference.c0, reference.c1});
  }
  const Tensor sum = square(value_of(critic, state, linear(state, actor))).sum();
  a.backward(sum, 1, {.retain_graph = true});
  a.backward(sum);  // the same graph once more
  CHECK(mentions(error_of([&] { a.backward(sum); }), {"an earlier backward() freed"}));
}

TEST_CASE("frozen leaves take no gradient, whatever was recorded when, and keep what they have") {
  Tensor w = parameter({1, 2}, {2}), v = parameter({3, 4}, {2});
  const Tensor before = (square(w) * v).sum();
  (w * 2.0).sum().backward();
  CHECK(values_of(w.grad()) == std::vector<double>{2, 2});
  {
    const Freeze outer({w});
    auto inner = std::make_unique<Freeze>(std::vector<Tensor>{w, zeros({2})});
    CHECK(!w.requires_grad());
    CHECK(!(w * 2.0).requires_grad());
    (square(w) * v).sum().backward();
    CHECK(values_of(v.grad()) == std::vector<double>{1, 4});
    inner.reset();
    before.backward();  // recorded before the guard
    CHECK(values_of(v.grad()) == std::vector<double>{2, 8});
    CHECK(values_of(w.grad()) == std::vector<double>{2, 2});
    CHECK(mentions(error_of([&] { w.set_requires_grad(); }), {"[set_requires_grad]", "is frozen"}));
    CHECK(mentions(error_of([&] { w.set_requires_grad(false); }),
                   {"[set_requires_grad]", "is frozen"}));  // else the guard's end would undo it
    CHECK(
        mentions(error_of([&] { const Freeze bad({square(v)}); }), {"[Freeze]", "made by an op"}));
    CHECK(mentions(error_of([&] { const Freeze bad({v, Tensor()}); }), {"tensor 1 is undefined"}));
    CHECK(v.requires_grad());
  }
  CHECK(w.requires_grad());
  (w * 2.0).sum().backward();
  CHECK(values_of(w.grad()) == std::vector<double>{4, 4});
}

TEST_CASE("a step whose parameters were all frozen is skipped") {
  Tensor w = parameter({1, 2}, {2}), stray = parameter({1}, {1});
  SGD opt({w}, {.lr = 1});
  Warnings warnings;
  {
    const Freeze guard(opt.parameters());
    opt.backward((w * stray).sum());
  }
  CHECK(opt.step().status() == optim::StepStatus::skipped_no_gradients);
  CHECK(warnings.texts.size() == 1);
  opt.backward(w.sum());
  CHECK(opt.step());
}

// ---- Weights that are written after the optimizer was made ----

TEST_CASE("[S28] 16-bit weights that are loaded or edited are what the next step starts from") {
  for (const DType dtype : {f16, bf16}) {
    CAPTURE(to_string(dtype));
    Tensor w = parameter({1, 2, 3}, {3}, dtype), v = parameter({5}, {1}, dtype);
    SGD opt({w, v}, {.lr = 0x1p-12}, {.loss_scale = LossScale::none()});
    opt.backward(objective(w, {1}) + objective(v, {1}));
    REQUIRE(opt.step());
    {
      const NoGrad guard;
      copy_(w, make({7, values_of(w)[1], -4}, {3}, dtype));  // the one in the middle stays
    }
    opt.backward(objective(w, {1}) + objective(v, {1}));
    REQUIRE(opt.step());
    CHECK(values_of(state_of(opt, "parameters.0.master")) ==
          std::vector<double>{7 - 0x1p-12, 2 - 0x1p-11, -4 - 0x1p-12});
    CHECK(values_of(state_of(opt, "parameters.1.master")) == std::vector<double>{5 - 0x1p-11});
    {
      const NoGrad guard;
      fill_(w, 8);  // between backward() and step()
    }
    opt.backward(objective(w, {1}));
    {
      const NoGrad guard;
      fill_(w, 16);
    }
    REQUIRE(opt.step());
    CHECK(values_of(state_of(opt, "parameters.0.master")) == std::vector<double>(3, 16 - 0x1p-12));
  }
}

TEST_CASE("[S28] a restored state keeps its masters and averages to the bit") {
  const auto make_model = [] { return parameter({1, 2, 3}, {3}, f16); };
  Tensor w = make_model(), u = make_model();
  const optim::StepOptions options{.loss_scale = LossScale::none(), .ema = 0.5};
  optim::AdamW from({w}, {.lr = 1e-4}, options), to({u}, {.lr = 1e-4}, options);
  for (int i = 0; i < 3; ++i) {
    from.backward(objective(w, {1}));
    REQUIRE(from.step());
  }
  const auto source = from.state();
  for (const auto& [name, tensor] : to.state())
    for (const auto& s : source)
      if (s.name == name) copy_(tensor, s.tensor);
  const auto step = [](optim::AdamW& opt, const Tensor& p) {
    opt.backward(objective(p, {1}));
    REQUIRE(opt.step());
    return bits_of_training(opt);
  };
  CHECK(step(to, u) == step(from, w));
  {
    const optim::AveragedWeights guard(to);  // writes weights, and puts them back
  }
  CHECK(step(to, u) == step(from, w));
}

}  // namespace
}  // namespace firn::testing
