// Checkpoints in whole trainings: captured steps, cycles that are tried again, memory that runs
// out, plans and policies.
#include <optional>
#include <string>
#include <vector>

#include "firn/train/graph_step.h"
#include "recompute/models.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

constexpr std::int64_t kSamples = 4;

struct Training {
  struct Seeded {
    Seeded() { manual_seed(3); }
  } seeded;
  Transformer net;
  std::optional<optim::AdamW> opt;
  Tensor x, y;

  explicit Training(const std::optional<CheckpointOptions>& checkpoint, DType dtype = f32,
                    const optim::StepOptions& options = {}) {
    net.to(dtype);
    for (auto& block : net.blocks) block.set_checkpoint(checkpoint);
    opt.emplace(net.parameters(), optim::AdamWOptions{.lr = 1e-2}, options);
    x = randn({kSamples, 6, 16}).to(dtype);
    y = zeros({kSamples * 6}, i64);
  }
  Loss loss(std::int64_t first, std::int64_t last) {
    return cross_entropy(net(x.slice(0, first, last)), y.slice(0, 6 * first, 6 * last));
  }
  optim::StepReport batch(const optim::MicroBatch& size) {
    return opt->run_batch(kSamples, size,
                          [this](auto first, auto last) { return loss(first, last); });
  }
  std::vector<double> state() const { return state_and_stream(*opt); }
};

}  // namespace

TEST_CASE("recompute: captured steps are those that are not", "[recompute]") {
  const auto train = [](const std::optional<CheckpointOptions>& checkpoint, bool captured) {
    Training t(checkpoint);
    const auto work = [&t] {
      t.opt->backward(t.loss(0, kSamples));
      t.opt->step();
    };
    graph::Step step(*t.opt, work);
    for (int i = 0; i < (on_slow_device() ? 3 : 5); ++i) {
      if (captured) {
        step();
      } else {
        work();
      }
    }
    return t.state();
  };
  const auto plain = train({}, false);
  for (const Keep keep : {Keep::inputs, Keep::products})
    if (keep == Keep::inputs || !on_slow_device())
      CHECK(train(CheckpointOptions{.keep = keep}, true) == plain);
}

TEST_CASE("recompute: a cycle that overflows is tried again with the same numbers",
          "[recompute][long]") {
  optim::StepOptions options{.accumulate = 2};
  options.loss_scale =
      optim::LossScale::dynamic({.init = 1 << 24, .on_overflow = optim::OverflowPolicy::retry});
  const auto train = [&](const std::optional<CheckpointOptions>& checkpoint) {
    Training t(checkpoint, f16, options);
    for (int i = 0; i < (on_slow_device() ? 1 : 3); ++i) t.batch({.size = 2});
    CHECK(t.opt->loss_scale() < 1 << 24);
    return t.state();
  };
  CHECK(train(CheckpointOptions{}) == train({}));
}

TEST_CASE("recompute: memory that runs out at any allocation leaves the run of smaller parts",
          "[recompute][long]") {
  const auto halved = [](const std::optional<CheckpointOptions>& checkpoint, std::int64_t size) {
    Training t(checkpoint);
    t.batch({.size = size});
    return t.state();
  };
  const auto whole = halved({}, kSamples), half = halved({}, kSamples / 2);
  int failures = 0;
  for (std::uint64_t k = 0;; k += k < 200 ? 1 : 7) {
    Training t(CheckpointOptions{});
    std::int64_t size = 0;
    {
      const FailAllocation fail(k);
      size = t.batch({.size = kSamples}).micro_batch();
    }
    CAPTURE(k);
    if (size == kSamples) {
      CHECK(t.state() == whole);
      break;
    }
    ++failures;
    CHECK(size == kSamples / 2);
    CHECK(t.state() == half);
  }
  CHECK(failures > 100);
}

TEST_CASE("recompute: plans know what is computed again", "[recompute]") {
  for (const Keep keep : {Keep::inputs, Keep::products}) {
    Training t(CheckpointOptions{.keep = keep});
    const auto step = [&t] {
      t.opt->backward(t.loss(0, kSamples));
      t.opt->step();
    };
    step();
    const MemoryPlan plan = plan_memory(step);
    reset_peak_memory();
    step();
    const MemoryStats stats = memory_stats();
    CHECK(plan.peak == stats.total.peak);
    CHECK(plan.report.stats.at_peak == stats.at_peak);
  }
}

TEST_CASE("recompute: policies for blocks, names and budgets", "[recompute][long]") {
  Training t({});
  const auto on = [&t] {
    std::string which;
    for (const auto& b : t.net.blocks)
      which += !b.checkpoint_options()                          ? '-'
               : b.checkpoint_options()->keep == Keep::products ? 'p'
                                                                : 'i';
    return which;
  };
  CHECK(nn::checkpoint_blocks(t.net) == 3);
  CHECK(on() == "iii");
  CHECK(nn::checkpoint_blocks(t.net, {.every = 2, .keep = Keep::products}) == 2);
  CHECK(on() == "p-p");
  nn::checkpoint_modules(t.net, {"blocks.1", "head"});
  CHECK(on() == "pip");
  CHECK(t.net.head.checkpoint_options());
  CHECK_THAT(error_of([&] {
               nn::checkpoint_modules(t.net, {"blocks.0", "tail", "blocks.3"});
             }),
             test::contains("tail, blocks.3"));
  CHECK(on() == "pip");
  nn::checkpoint_nothing(t.net);
  CHECK(on() == "---");
  CHECK_FALSE(t.net.head.checkpoint_options());
  CHECK_THAT(error_of([&] { nn::checkpoint_blocks(t.net.head); }),
             test::contains("no list of modules"));
  CHECK_THAT(error_of([&] { nn::checkpoint_blocks(t.net, {.every = -1}); }), test::contains("-1"));

  const auto step = [&t] {
    t.opt->backward(t.loss(0, kSamples));
    t.opt->step();
  };
  step();
  std::vector<std::size_t> peaks;
  for (const nn::BlockCheckpoints& p :
       {nn::BlockCheckpoints{0}, {1, Keep::products}, {1, Keep::inputs}}) {
    nn::checkpoint_blocks(t.net, p);
    peaks.push_back(plan_memory(step).peak);
  }
  REQUIRE(peaks[2] < peaks[1]);
  REQUIRE(peaks[1] < peaks[0]);
  nn::checkpoint_nothing(t.net);
  CHECK(nn::checkpoint_within(t.net, peaks[0], step).every == 0);
  CHECK(on() == "---");
  MemoryPlan plan;
  const nn::BlockCheckpoints middle = nn::checkpoint_within(t.net, peaks[0] - 1, step, &plan);
  CHECK(middle.every > 0);
  CHECK(plan.peak < peaks[0]);
  CHECK(plan_memory(step).peak == plan.peak);
  std::size_t last = SIZE_MAX;
  for (std::size_t budget = peaks[0]; budget >= peaks[2];
       budget -= std::min(budget, 1 + (peaks[0] - peaks[2]) / 8)) {
    nn::checkpoint_within(t.net, budget, step, &plan);
    CHECK(plan.peak <= budget);
    reset_peak_memory();
    step();
    CHECK(memory_stats().total.peak <= budget);
    last = plan.peak;
  }
  CHECK(last <= peaks[1]);
  nn::checkpoint_nothing(t.net);
  CHECK_THAT(
      error_of([&] { nn::checkpoint_within(t.net, 1000, step); }),
      test::contains(std::to_string(peaks[2])) && test::contains("every block keeps its inputs"));
  CHECK(on() == "---");
}
