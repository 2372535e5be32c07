// Whose cycle moves the running statistics of a BatchNorm in per_step mode, if passes of several
// optimizers go through it: a GAN, a layer that nobody trains, a retained graph.
#include <optional>
#include <utility>

#include "semantics/batch_norm/net.h"

namespace firn::testing {
namespace {

using optim::Partial;
using optim::SGD;
using optim::SkipPolicy;
using optim::StepOptions;
using optim::StepStatus;

/// With momentum 1 the running statistics are those of the last cycle's samples.
nn::BatchNormOptions last_cycle_alone(bool affine = true) {
  return {.momentum = 1.0, .affine = affine, .accumulation = BatchNormMode::per_step};
}

struct Critic : nn::Module {
  nn::BatchNorm1d norm{1, last_cycle_alone()};
  nn::Linear head{1, 1};
  FIRN_MEMBERS(norm, head)
  Tensor forward(const Tensor& x) override { return head(tanh(norm(x))); }
};

struct Gan {
  DType dtype;
  bool freezes;
  Critic critic;
  nn::Linear generator{3, 1};
  SGD d, g;

  Gan(DType t, bool freeze, const StepOptions& d_options, const StepOptions& g_options)
      : dtype((manual_seed(1), t)),
        freezes(freeze),
        d((critic.to(t), critic.parameters()), {.lr = 0.1}, d_options),
        g((generator.to(t), generator.parameters()), {.lr = 0.1}, g_options) {}

  static Loss loss_of(const Tensor& score) {
    return mse_loss(score.to(f32), ones({score.shape()[0], 1}));
  }
  Tensor real(double first) const {
    return make({first, first + 1, first + 2, first + 1}, {4, 1}, dtype);
  }
  void learn_real(double first) { d.backward(loss_of(critic(real(first)))); }
  /// The generator's pass goes through the critic.
  void learn_to_fool(bool bad = false) {
    const Tensor z = make(Rng(3).uniforms(18, -1, 1), {6, 3}, dtype);
    std::optional<Freeze> guard;
    if (freezes) guard.emplace(critic.parameters());
    Loss loss = loss_of(critic(generator(z)));
    if (bad) loss.sum = spoilt(loss.sum);
    g.backward(loss);
  }
  Bits bits() const { return bits_of_buffers(critic) + bits_of_training(d); }
  const nn::BatchNorm1d& norm() const { return critic.norm; }
};

// What becomes of the generator's cycle.
enum class Fate { applied, skipped, dropped, flushed, destroyed };

TEST_CASE("[S19][S16] bn_cycle: a GAN's discriminator has statistics of its own samples alone") {
  for (const DType dtype : {f32, f16})
    for (const bool freezes : {false, true})
      for (const std::int64_t length : {1, 2})
        for (const Fate fate :
             {Fate::applied, Fate::skipped, Fate::dropped, Fate::flushed, Fate::destroyed}) {
          CAPTURE(to_string(dtype), freezes, length, static_cast<int>(fate));
          const auto run = [&](bool with_generator) {
            Gan gan(dtype, freezes, {.accumulate = length}, {});
            for (int cycle = 0; cycle < 2; ++cycle)
              for (std::int64_t i = 0; i < length; ++i) {
                if (with_generator) gan.learn_to_fool();  // before the first pass of the cycle
                gan.learn_real(10.0 * static_cast<double>(cycle + i));
                if (with_generator) {
                  gan.learn_to_fool(fate == Fate::skipped);
                  if (fate == Fate::applied) CHECK(gan.g.step().applied());
                  if (fate == Fate::skipped)
                    CHECK(gan.g.step().status() == StepStatus::skipped_non_finite);
                  if (fate == Fate::dropped) gan.g.zero_grad();
                  if (fate == Fate::flushed) gan.g.flush(Partial::drop);
                  if (fate == Fate::destroyed) {
                    { const SGD gone = std::move(gan.g); }
                    gan.g = SGD(gan.generator.parameters(), {.lr = 0.1});
                  }
                }
                const bool ends = i + 1 == length;
                CHECK(gan.d.step().applied() == ends);
              }
            // The last cycle's samples: 10, 11, 12, 11, and in a cycle of two 20, 21, 22, 21 too.
            CHECK(gan.norm().running_mean.item() == (length == 1 ? 11 : 16));
            CHECK(gan.norm().num_batches_tracked.item() == 2);
            return gan.bits();
          };
          CHECK(run(true) == run(false));
        }
}

TEST_CASE("[S19][S16] bn_cycle: a cycle without a pass of its own leaves the statistics alone") {
  Gan gan(f32, false, {}, {});
  const Bits before = bits_of_buffers(gan.critic);
  gan.learn_to_fool();
  CHECK(bits_of_buffers(gan.critic) == before);
  CHECK(gan.g.step().applied());
  CHECK(bits_of_buffers(gan.critic) == before);
  gan.learn_real(0);  // the discriminator's cycle is dropped, and the generator's applied
  gan.learn_to_fool();
  gan.d.zero_grad();
  CHECK(gan.g.step().applied());
  CHECK(bits_of_buffers(gan.critic) == before);
}

TEST_CASE("[S19][S16] bn_cycle: statistics do not depend on the order in step_all()") {
  for (const SkipPolicy policy : {SkipPolicy::each, SkipPolicy::all})
    for (const bool bad : {false, true}) {
      CAPTURE(policy == SkipPolicy::each, bad);
      const auto run = [&](bool generator_first) {
        const StepOptions options{.scaler =
                                      optim::LossScaler(optim::LossScale::dynamic({.init = 64}))};
        Gan gan(f32, true, options, options);
        gan.learn_real(9);
        gan.learn_to_fool(bad);
        if (generator_first) {
          optim::step_all({&gan.g, &gan.d}, policy);
        } else {
          optim::step_all({&gan.d, &gan.g}, policy);
        }
        const bool applied = !bad || policy == SkipPolicy::each;
        CHECK(gan.norm().running_mean.item() == (applied ? 10 : 0));
        CHECK(gan.norm().num_batches_tracked.item() == (applied ? 1 : 0));
        CHECK(pool_is_empty(gan.norm()));
        return gan.bits();
      };
      CHECK(run(true) == run(false));
    }
}

TEST_CASE("[S19][S23] bn_cycle: a restored pool waits for the optimizer that trains the layer") {
  Gan saved(f32, false, {.accumulate = 2}, {}), fresh(f32, false, {.accumulate = 2}, {});
  saved.learn_real(0);
  saved.d.step();
  const auto from = saved.d.state(), to = fresh.d.state();
  for (std::size_t i = 0; i < to.size(); ++i) copy_(to[i].tensor, from[i].tensor);
  const auto pools = saved.critic.named_buffers(), targets = fresh.critic.named_buffers();
  for (std::size_t i = 0; i < pools.size(); ++i) copy_(targets[i].tensor, pools[i].tensor);
  fresh.learn_to_fool();
  CHECK(fresh.g.step().applied());
  CHECK(fresh.norm().pooled_count.item() == 4);
  fresh.learn_real(10);
  REQUIRE(fresh.d.step().applied());
  CHECK(fresh.norm().running_mean.item() == 6);
  CHECK(fresh.norm().num_batches_tracked.item() == 1);
}

// ---- A layer that no optimizer trains ----

struct Heads {
  nn::BatchNorm1d norm;
  nn::Linear before{1, 1}, first{1, 1}, second{1, 1};
  SGD a, b;

  // Without weights, with frozen ones, or with weights that nobody was given.
  explicit Heads(int kind)
      : norm(1, last_cycle_alone(kind != 0)),
        a((manual_seed(2), first.parameters()), {.lr = 0}, {.accumulate = 2}),
        b(second.parameters(), {.lr = 0}) {
    if (kind == 1) norm.set_requires_grad(false);
  }
  // Statistics are of x itself: a gradient reaches the layer's output through its input.
  void pass(SGD& opt, const nn::Linear& head, double value, bool bad = false) {
    Tensor x = make({value, value + 2}, {2, 1}, f32);
    x.set_requires_grad();
    Tensor loss = const_cast<nn::Linear&>(head)(norm(x)).square().sum();
    if (bad) loss = spoilt(loss);
    opt.backward(loss, 2);
  }
  void pass_a(double value) { pass(a, first, value); }
  void pass_b(double value, bool bad = false) { pass(b, second, value, bad); }
  double mean() const { return norm.running_mean.item(); }
  double tracked() const { return norm.num_batches_tracked.item(); }
};

TEST_CASE("[S19] bn_cycle: a layer that nobody trains belongs to the first cycle that reaches it") {
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    Heads h(kind);
    h.pass_a(0);
    h.a.step();
    h.pass_b(100);
    CHECK(h.norm.pooled_count.item() == 2);
    CHECK(h.b.step().applied());
    h.pass_b(100, true);
    CHECK(h.b.step().status() == StepStatus::skipped_non_finite);
    h.pass_b(100);
    h.b.zero_grad();
    CHECK(h.tracked() == 0);
    h.pass_a(4);
    CHECK(h.a.step().applied());
    CHECK(h.mean() == 3);  // of 0, 2, 4, 6
    CHECK(h.tracked() == 1);

    h.pass_b(100);  // now the other one comes first
    h.pass_a(0);
    h.a.step();
    h.pass_a(0);
    CHECK(h.a.step().applied());
    CHECK(h.tracked() == 1);
    CHECK(h.b.step().applied());
    CHECK(h.mean() == 101);
    CHECK(h.tracked() == 2);

    h.pass_a(0);  // a dropped cycle lets go of it
    h.a.zero_grad();
    h.pass_b(20);
    CHECK(h.b.step().applied());
    CHECK(h.mean() == 21);
    {
      SGD gone(h.before.parameters(), {.lr = 0});  // and so does an optimizer that goes
      h.pass(gone, h.first, 50);
      CHECK(h.norm.pooled_count.item() == 2);
    }
    CHECK(h.norm.pooled_count.item() == 0);
    h.pass_b(30);
    CHECK(h.b.step().applied());
    CHECK(h.mean() == 31);
    CHECK(h.tracked() == 4);
  }
}

TEST_CASE("[S19] bn_cycle: an optimizer made for a layer in mid-cycle of another one takes it") {
  Heads h(2);
  h.pass_a(100);  // nobody trains the layer yet
  SGD own(h.norm.parameters(), {.lr = 0});
  h.pass(own, h.first, 0);
  h.a.step();
  h.pass_a(100);
  CHECK(h.a.step().applied());
  CHECK(h.tracked() == 0);
  REQUIRE(own.step().applied());
  CHECK(h.mean() == 1);
  CHECK(h.tracked() == 1);
}

TEST_CASE("[S19] bn_cycle: a layer whose weights were replaced is one that nobody trains") {
  const Warnings of_unreached_weights;
  Heads h(2);
  SGD old(h.norm.parameters(), {.lr = 0});
  h.pass(old, h.first, 100);
  old.zero_grad();
  h.norm.weight = nn::Parameter::full({1}, 1);
  h.norm.bias = nn::Parameter::full({1}, 0);
  h.pass_b(0);
  h.pass(old, h.first, 100);
  old.step();
  CHECK(h.b.step().applied());
  CHECK(h.mean() == 1);
  CHECK(h.tracked() == 1);
}

TEST_CASE("[S19] bn_cycle: copies of a layer pool together, for the optimizer of their weight") {
  Heads h(2);
  nn::BatchNorm1d copy = h.norm;
  SGD own(h.norm.parameters(), {.lr = 0});
  std::swap(copy, h.norm);
  h.pass(own, h.first, 0);
  std::swap(copy, h.norm);
  h.pass_b(100);
  h.pass(own, h.first, 4);
  CHECK(h.b.step().applied());
  REQUIRE(own.step().applied());
  CHECK(h.mean() == 3);
  CHECK(copy.num_batches_tracked.item() == 1);
}

// ---- A graph that is back-propagated twice ----

TEST_CASE("[S19] bn_cycle: samples of a retained graph count once per cycle, however many roots") {
  for (const DType dtype : {f32, f16}) {
    CAPTURE(to_string(dtype));
    Critic net;
    net.to(dtype);
    SGD opt(net.parameters(), {.lr = 0}, {.accumulate = 2, .loss_scale = optim::LossScale::none()});
    const Tensor x = make({-1, 0, 1, 0}, {4, 1}, dtype);
    const Tensor y = net(x).to(f32);
    const auto back = [&] { opt.backward(y.square().sum(), 4, {.retain_graph = true}); };
    back();
    opt.step();
    back();
    CHECK(net.norm.pooled_count.item() == 4);
    opt.zero_grad();
    CHECK(net.norm.pooled_count.item() == 0);
    back();  // the next cycle has them too
    opt.backward(y.abs().sum(), 4);
    CHECK(opt.flush().applied());
    CHECK(net.norm.running_var.item() == Approx(2.0 / 3).epsilon(1e-6));
    CHECK(net.norm.num_batches_tracked.item() == 1);
  }
}

TEST_CASE("[S19] bn_cycle: a graph retained over several applied steps counts in each") {
  nn::BatchNorm1d norm(1, last_cycle_alone(false));
  Tensor x = make({-1, 0, 1, 0}, {4, 1}, f32), shift = make({1}, {1}, f32);
  x.set_requires_grad();
  shift.set_requires_grad();
  SGD opt({shift}, {.lr = 0.1}, {.accumulate = 2});
  const Tensor y = norm(x);
  for (int i = 0; i < 3; ++i) {
    opt.backward((y + shift).square().sum(), 4, {.retain_graph = true});
    opt.step();
    opt.backward((norm(x + 10.0) + y - shift).square().sum(), 8, {.retain_graph = true});
    CHECK(norm.pooled_count.item() == 8);
    CHECK(opt.step().applied());
    CHECK(norm.running_mean.item() == 5);
    CHECK(norm.num_batches_tracked.item() == i + 1);
  }
}

TEST_CASE("[S19] bn_cycle: a loss that trains two networks moves each layer for its own") {
  for (const bool encoder_first : {true, false}) {
    CAPTURE(encoder_first);
    manual_seed(1);
    Critic encoder, head;
    SGD e(encoder.parameters(), {.lr = 0}), h(head.parameters(), {.lr = 0});
    const Tensor x = make({-1, 0, 1, 0}, {4, 1}, f32);
    const Loss loss = mse_loss(head(encoder(x)), ones({4, 1}));
    SGD& first = encoder_first ? e : h;
    SGD& second = encoder_first ? h : e;
    first.backward(loss, {.retain_graph = true});
    second.backward(loss);
    CHECK(h.step().applied());
    CHECK(head.norm.num_batches_tracked.item() == 1);
    CHECK(encoder.norm.num_batches_tracked.item() == 0);
    CHECK(e.step().applied());
    CHECK(encoder.norm.running_var.item() == Approx(2.0 / 3).epsilon(1e-6));
    CHECK(encoder.norm.num_batches_tracked.item() == 1);
    CHECK(head.norm.num_batches_tracked.item() == 1);
  }
}

}  // namespace
}  // namespace firn::testing
