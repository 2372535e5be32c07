// Micro-batches and checkpoints that are planned together.
#include "firn/train/plan_within.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "recompute/models.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

constexpr std::int64_t kSamples = 8;

template <class Net>
struct Training {
  struct Seeded {
    Seeded() { manual_seed(3); }
  } seeded;
  Net net;
  std::optional<optim::AdamW> opt;
  Tensor x;

  explicit Training(const Shape& sample, DType dtype = f32) {
    net.to(dtype);
    opt.emplace(net.parameters());
    x = randn(sample).to(dtype);
  }
  std::function<Loss(std::int64_t, std::int64_t)> loss() {
    return [this](std::int64_t first, std::int64_t last) {
      const Tensor y = net(x.slice(0, first, last));
      return cross_entropy(y, zeros({y.size(0)}, i64));
    };
  }
  optim::BatchPlan plan(std::size_t budget, const optim::PlanOptions& options = {}) {
    return optim::plan_within(budget, *opt, net, kSamples, loss(), options);
  }
  optim::StepReport step(std::int64_t size) {
    return opt->run_batch(kSamples, {.size = size, .split_statistics = true}, loss());
  }
  std::size_t planned(const nn::BlockCheckpoints& policy, std::int64_t size) {
    nn::checkpoint_blocks(net, policy);
    const std::size_t peak = plan_memory([&] { step(size); }).peak;
    nn::checkpoint_nothing(net);
    return peak;
  }
  std::vector<double> state() const { return state_and_stream(*opt); }
};

}  // namespace

TEST_CASE("[S38] plan_within: sizes and checkpoints stay within one budget, to the byte",
          "[recompute][long]") {
  const Shape sample{kSamples, 24, 16};
  Training<Transformer> t(sample);
  t.step(1);
  const std::size_t most = t.planned({0}, kSamples), least = t.planned({1, Keep::inputs}, 1);
  REQUIRE(least < most);
  const std::int64_t steps = on_slow_device() ? 3 : 9;
  for (const std::int64_t at_least : {1, 4}) {
    std::int64_t size_before = kSamples;
    int recomputes = 0;
    for (std::int64_t i = 0; i <= steps; ++i) {
      const std::size_t budget =
          most - (most - least) * static_cast<std::size_t>(i) / static_cast<std::size_t>(steps);
      CAPTURE(at_least, i, budget);
      nn::checkpoint_nothing(t.net);
      const auto before = t.state();
      const optim::BatchPlan plan = t.plan(budget, {.least_micro_batch = at_least});
      INFO(to_string(plan));
      CHECK(t.state() == before);
      CHECK(plan.peak <= budget);
      // Nothing is computed again while micro-batches may be smaller, and the other way round.
      if (plan.checkpoints.every > 0) {
        ++recomputes;
        CHECK(t.planned({0}, at_least) > budget);
        nn::checkpoint_blocks(t.net, plan.checkpoints);
      }
      if (plan.micro_batch < at_least) CHECK(t.planned({1, Keep::inputs}, at_least) > budget);
      nn::checkpoint_blocks(t.net, plan.checkpoints);
      if (at_least == 1) CHECK(plan.micro_batch <= size_before);
      size_before = plan.micro_batch;
      reset_peak_memory();
      const optim::StepReport report = t.step(plan.micro_batch);
      CHECK(report.memory_retries() == 0);
      CHECK(memory_stats().total.peak == plan.peak);
    }
    CHECK(recomputes > 0);
  }
}

TEST_CASE("[S35] plan_within: the run is that of the same micro-batches without checkpoints",
          "[recompute]") {
  const Shape sample{kSamples, 24, 16};
  const auto train = [&](bool planned) {
    Training<Transformer> t(sample, bf16);
    std::int64_t size = 4;
    if (planned) {
      const optim::BatchPlan plan = t.plan(t.planned({0}, 4) - 1, {.least_micro_batch = 4});
      CHECK(plan.checkpoints.every > 0);
      CHECK(plan.micro_batch == 4);
      size = plan.micro_batch;
    }
    for (int i = 0; i < 2; ++i) t.step(size);
    return t.state();
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("plan_within: what normalises a batch keeps it whole, and what is refused",
          "[recompute]") {
  const Quiet quiet;
  const Shape sample{kSamples, 1, 6, 6};
  Training<ConvNet> t(sample);
  t.step(kSamples);
  const std::size_t whole = t.planned({0}, kSamples), half = t.planned({0}, kSamples / 2);
  REQUIRE(half < whole);
  const optim::BatchPlan plan = t.plan(whole - 1);
  CHECK(plan.micro_batch == kSamples);
  CHECK(plan.checkpoints.every > 0);
  CHECK(plan.peak < whole);
  const optim::BatchPlan split = t.plan(whole - 1, {.split_statistics = true});
  CHECK(split.micro_batch < kSamples);
  CHECK(split.checkpoints.every == 0);

  const auto before = t.state();
  nn::checkpoint_blocks(t.net, {.every = 3});
  CHECK_THAT(error_of([&] { t.plan(1000); }),
             test::contains("normalises the samples") &&
                 test::contains("if every block keeps its inputs, a batch"));
  CHECK_THAT(error_of([&] { t.plan(1000, {.split_statistics = true}); }),
             test::contains("micro-batches of one sample have a peak of") &&
                 test::contains("keeps its inputs"));
  CHECK_THAT(error_of([&] { t.plan(whole, {.least_micro_batch = 0}); }),
             test::contains("of 0 samples"));
  CHECK_THAT(error_of([&] { optim::plan_within(whole, *t.opt, t.net, 0, t.loss()); }),
             test::contains("a batch of 0 samples"));
  CHECK_THAT(error_of([&] { optim::plan_within(whole, *t.opt, t.net, kSamples, {}); }),
             test::contains("the function is empty"));
  CHECK_THAT(error_of([&] { optim::plan_within(whole, *t.opt, t.net.head, kSamples, t.loss()); }),
             test::contains("no list of modules"));
  CHECK(t.net.blocks[0].checkpoint_options());
  CHECK_FALSE(t.net.blocks[1].checkpoint_options());
  CHECK(t.state() == before);
  t.opt->backward(t.loss()(0, kSamples));
  CHECK_THROWS_AS(t.plan(whole), Error);
}
