// Steps of a model with BatchNorm as graphs: micro-steps pool in theirs, the last one of a cycle
// moves the running statistics in its own, and all of it is what eager steps do.
#include "firn/nn/layers/batch_norm.h"

#include <optional>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "firn/train/graph_step.h"
#include "firn/warning.h"
#include "graph/steps.h"
#include "optim/problem.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;
using nn::BatchNormMode;

namespace {

constexpr std::int64_t kBatch = 6, kClasses = 3;

struct Net : nn::Module {
  nn::BatchNorm2d images{4};
  nn::Linear fc{4 * 3 * 3, 8}, out{8, kClasses};
  nn::BatchNorm1d hidden{8, {.affine = false}};
  FIRN_MEMBERS(images, fc, hidden, out)
  Tensor forward(const Tensor& x) override {
    return out(relu(hidden(fc(flatten(relu(images(x)), 1)))));
  }
};

struct Setting {
  BatchNormMode mode = BatchNormMode::per_step;
  std::int64_t accumulate = 1;
  bool half = false;
};

struct Run {
  Bits buffers, training;
  std::int64_t applied = 0, skipped = 0;
  std::uint64_t waits = 0;
};

Run run_training(const Setting& s, bool as_graph, int micro_steps) {
  manual_seed(3);
  Net net;
  nn::convert_batch_norm(net, s.mode);
  const DType t = s.half ? f16 : f32;
  net.to(t);
  optim::StepOptions options{.accumulate = s.accumulate};
  if (s.half) options.loss_scale = optim::LossScale::dynamic({.growth_interval = 5});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, options);
  const Tensor x = zeros({kBatch, 4, 3, 3}, t), y = zeros({kBatch}, i64);
  const auto work = [&] {
    opt.backward(cross_entropy(net(x), y));
    opt.step();
  };
  Run run;
  run.waits = take_steps(opt, {x, y, kClasses, true}, micro_steps, as_graph, work);
  opt.flush();  // by hand, after replays
  for (const nn::NamedTensor& b : net.named_buffers())
    run.buffers = run.buffers + bits_of(b.tensor);
  run.training = bits_of_training(opt);
  run.applied = opt.last_report().applied_steps();
  run.skipped = opt.last_report().skipped_steps();
  return run;
}

}  // namespace

TEST_CASE("[S19][S25] bn_cycle: replayed steps with BatchNorm are equal to eager ones, to the bit",
          "[graph][once]") {
  const WarningHandler before = set_warning_handler({});
  for (const Setting& s :
       {Setting{}, Setting{.accumulate = 4}, Setting{.accumulate = 3, .half = true},
        Setting{.mode = BatchNormMode::per_micro_batch},
        Setting{.mode = BatchNormMode::per_micro_batch, .accumulate = 3, .half = true}}) {
    CAPTURE(s.mode == BatchNormMode::per_micro_batch, s.accumulate, s.half);
    const Run eager = run_training(s, false, 62), replayed = run_training(s, true, 62);
    CHECK(eager.applied == replayed.applied);
    CHECK(eager.skipped == replayed.skipped);
    CHECK(eager.skipped >= 3);
    CHECK(eager.applied > 10);
    CHECK(eager.buffers == replayed.buffers);
    CHECK(eager.training == replayed.training);
    CHECK(eager.waits == 0);
    CHECK(replayed.waits == 0);
  }
  set_warning_handler(before);
}

TEST_CASE("[S19][S25] bn_cycle: a recorded drop empties the pools at every replay",
          "[graph][gpu]") {
  Net net;
  nn::convert_batch_norm(net, BatchNormMode::per_step);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 4});
  const Tensor x = make(Rng(1).uniforms(kBatch * 36, -1, 1), {kBatch, 4, 3, 3}, f32),
               y = zeros({kBatch}, i64);
  const auto micro_step = [&] { opt.backward(cross_entropy(net(x), y)); };
  micro_step();
  opt.zero_grad();
  auto graph = graph::Graph::capture(default_device(), [&] { opt.zero_grad(); });
  for (int i = 0; i < 2; ++i) {
    micro_step();
    CHECK(net.images.pooled_count.item() == kBatch * 9);
    graph.replay();
    CHECK(net.images.pooled_count.item() == 0);
    CHECK(net.hidden.pooled_count.item() == 0);
  }
  CHECK(net.images.num_batches_tracked.item() == 0);
}

TEST_CASE("[S19] bn_cycle: a layer that joins after the recording is not forgotten",
          "[graph][gpu]") {
  Net net;
  nn::BatchNorm1d late(kClasses, {.affine = false, .accumulation = BatchNormMode::per_step});
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor x = make(Rng(1).uniforms(kBatch * 36, -1, 1), {kBatch, 4, 3, 3}, f32),
               y = zeros({kBatch}, i64);
  graph::Step step(opt, [&] {
    opt.backward(cross_entropy(net(x), y));
    opt.step();
  });
  for (int i = 0; i < 3; ++i) step();
  opt.backward(cross_entropy(late(net(x)), y));
  opt.zero_grad();
  CHECK(error_of([&] { step(); }).find("record the step anew") != std::string::npos);
  step.reset();
  for (int i = 0; i < 3; ++i) step();
  CHECK(opt.last_report().applied_steps() == 6);
}

// ---- Two optimizers ----

namespace {

struct Gan {
  struct Critic : nn::Module {
    nn::BatchNorm1d norm{2, {.accumulation = BatchNormMode::per_step}};
    nn::BatchNorm1d bare{2, {.affine = false, .accumulation = BatchNormMode::per_step}};
    nn::Linear head{2, 1};
    FIRN_MEMBERS(norm, bare, head)
    Tensor forward(const Tensor& x) override { return head(bare(relu(norm(x)))); }
  } critic;
  nn::Linear generator{2, 2};
  Tensor real = zeros({kBatch, 2}), noise = zeros({kBatch, 2});
  optim::SGD d{critic.parameters(), {.lr = 0.1}, {.accumulate = 2}},
      g{generator.parameters(), {.lr = 0.1}};

  void fill(Rng& rng) const {
    for (const Tensor& t : {real, noise})
      copy_(t, make(rng.uniforms(kBatch * 2, -1, 3), {kBatch, 2}));
  }
  void learn() {
    d.backward(bce(critic(real), 1));
    {
      const Freeze guard(critic.parameters());
      g.backward(bce(critic(generator(noise)), 0));
    }
    g.step();
    d.step();
  }
  static Loss bce(const Tensor& score, double target) {
    return mse_loss(score, full({kBatch, 1}, target));
  }
};

}  // namespace

TEST_CASE("[S19][S25] bn_cycle: a GAN replayed as graphs has the statistics of eager steps",
          "[graph]") {
  const auto run = [](bool as_graph) {
    manual_seed(4);
    Gan gan;
    graph::Step step(gan.d, [&] { gan.learn(); });
    Rng rng(6);
    for (int i = 0; i < 20; ++i) {
      gan.fill(rng);
      if (as_graph) {
        step();
      } else {
        gan.learn();
      }
    }
    CHECK(gan.critic.norm.num_batches_tracked.item() == 10);
    CHECK(gan.critic.bare.num_batches_tracked.item() == 10);
    Bits bits;
    for (const nn::NamedTensor& b : gan.critic.named_buffers()) bits = bits + bits_of(b.tensor);
    return bits + bits_of_training(gan.d) + bits_of_training(gan.g);
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S19][S25] bn_cycle: a graph replayed in mid-cycle pools each time, a retained one once",
          "[graph][gpu]") {
  const auto run = [](bool as_graph) {
    manual_seed(4);
    Gan gan;
    const auto micro_step = [&] {
      const Tensor score = gan.critic(gan.real);
      gan.d.backward(score.square().sum(), 1, {.retain_graph = true});
      gan.d.backward(score.sum(), 1);
    };
    Rng rng(6);
    gan.fill(rng);
    micro_step();  // the first of a cycle that has no end yet
    std::optional<graph::Graph> graph;
    for (int i = 0; i < 3; ++i) {
      gan.fill(rng);
      if (!as_graph) {
        micro_step();
      } else if (!graph) {
        graph = graph::Graph::capture(default_device(), micro_step);  // runs it too
      } else {
        graph->replay();
      }
      CHECK(gan.critic.norm.pooled_count.item() == kBatch * (i + 2));
    }
    gan.d.flush();
    Bits bits;
    for (const nn::NamedTensor& b : gan.critic.named_buffers()) bits = bits + bits_of(b.tensor);
    return bits;
  };
  CHECK(run(true) == run(false));
}

namespace {

/// A layer that belongs to no optimizer, below the heads of two.
struct TwoHeads {
  nn::BatchNorm1d norm{2, {.affine = false, .accumulation = BatchNormMode::per_step}};
  nn::Linear a{2, 1}, b{2, 1}, in{2, 2};
  optim::SGD first{a.parameters(), {.lr = 0.1}}, second{b.parameters(), {.lr = 0.1}};
  Tensor x = make(Rng(1).uniforms(kBatch * 2, -1, 1), {kBatch, 2}, f32);

  void pass_first() { pass(first, a); }
  void pass_second() { pass(second, b); }

 private:
  void pass(optim::SGD& opt, nn::Linear& head) {
    opt.backward(head(norm(in(x))).square().sum(), kBatch);
  }
};

}  // namespace

TEST_CASE("[S19][S25] bn_cycle: a replay that finds the pool with another cycle is refused",
          "[graph][gpu]") {
  TwoHeads net;
  graph::Step step(net.first, [&] {
    net.pass_first();
    net.first.step();
  });
  for (int i = 0; i < 3; ++i) step();
  CHECK(net.norm.num_batches_tracked.item() == 3);
  net.pass_second();
  CHECK(error_of([&] { step(); }).find("belongs to another cycle") != std::string::npos);
  CHECK(net.norm.pooled_count.item() == kBatch);
  net.second.step();
  CHECK(net.norm.num_batches_tracked.item() == 4);
  step();
  CHECK(net.norm.num_batches_tracked.item() == 5);
}

TEST_CASE("[S19][S25] bn_cycle: an abandoned capture leaves the pool with whom it was",
          "[graph][gpu]") {
  TwoHeads().pass_first();  // a capture may choose no algorithms of products
  TwoHeads net;
  CHECK(error_of([&] {
          graph::Graph::capture(default_device(), [&] {
            net.pass_first();
            throw Error("test", "no more data");
          });
        }).find("no more data") != std::string::npos);
  CHECK(net.norm.pooled_count.item() == 0);
  net.pass_second();
  CHECK(net.second.step().applied());
  CHECK(net.norm.num_batches_tracked.item() == 1);
}
