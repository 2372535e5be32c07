// Batches of exact mode as graphs: a replay adds its chunks in the same tree and draws random
// numbers of its own, and the host does not wait for a chunk.
#include <fmt/format.h>

#include <string>

#include "firn/nn/layers/batch_norm.h"
#include "firn/warning.h"
#include "graph/steps.h"
#include "optim/problem.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

constexpr std::int64_t kSamples = 22, kChunk = 4, kClasses = 3;  // six chunks, the last one short

struct Net : nn::Module {
  nn::Linear a{6, 16}, b{16, kClasses};
  nn::Dropout drop{0.3};
  nn::LayerNorm norm{16};
  FIRN_MEMBERS(a, norm, drop, b)
  Tensor forward(const Tensor& x) override { return b(drop(gelu(norm(a(x))))); }
};

struct Run {
  Bits training;
  std::string totals;
  std::int64_t applied = 0, skipped = 0;
  std::uint64_t waits = 0;
  RandomKey random;
};

Run run_training(DType dtype, bool as_graph) {
  manual_seed(3);
  Net net;
  net.to(dtype);
  optim::StepOptions options{.clip_norm = 0.5, .exact = {.chunk = kChunk}};
  if (dtype == f16) options.loss_scale = optim::LossScale::dynamic({.growth_interval = 5});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, options);
  const Tensor x = zeros({kSamples, 6}, dtype), y = zeros({kSamples}, i64);
  const auto work = [&] {
    opt.run_batch(kSamples, 8, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  };
  Run run;
  run.waits = take_steps(opt, {x, y, kClasses, true}, 45, as_graph, work);
  work();  // by hand, after replays
  run.training = bits_of_training(opt);
  const auto report = opt.last_report();
  run.totals =
      fmt::format("{:a} {:a} {:a} {:a} {}", opt.loss_totals().loss, opt.loss_totals().weight,
                  report.loss(), report.norm(), report.micro_steps());
  run.applied = report.applied_steps();
  run.skipped = report.skipped_steps();
  run.random = default_generator().get();
  return run;
}

}  // namespace

TEST_CASE("[S25][S39] exact: replayed batches are equal to eager ones, to the bit",
          "[graph][once]") {
  const WarningHandler before = set_warning_handler({});
  for (const DType dtype : {f32, f16}) {
    CAPTURE(dtype);
    const Run eager = run_training(dtype, false), replayed = run_training(dtype, true);
    CHECK(eager.training == replayed.training);
    CHECK(eager.totals == replayed.totals);
    CHECK(eager.applied == replayed.applied);
    CHECK(eager.skipped == replayed.skipped);
    CHECK(eager.skipped >= 2);
    CHECK(eager.random.seed == replayed.random.seed);
    CHECK(eager.random.offset == replayed.random.offset);
    CHECK(eager.waits == 0);
    CHECK(replayed.waits == 0);
  }
  set_warning_handler(before);
}

TEST_CASE("[S39] exact: a captured batch outlives a larger one, and a drop between replays",
          "[graph][once]") {
  const auto run = [](bool as_graph) {
    manual_seed(5);
    Net net;
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 2}});
    const Tensor x = make(Rng(2).uniforms(40 * 6, -1, 1), {40, 6}, f32), y = zeros({40}, i64);
    const auto batch = [&](std::int64_t samples) {
      opt.run_batch(samples, 2, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
      });
    };
    graph::Step step(opt, [&] { batch(6); });
    for (int i = 0; i < 12; ++i) {
      if (as_graph)
        step();
      else
        batch(6);
      if (i == 4) batch(40);  // needs more memory for sums
      if (i == 7) {
        CHECK_THROWS(opt.run_batch(6, 2, [&](std::int64_t first, std::int64_t last) {
          if (first == 4) throw Error("loader", "no more");
          return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
        }));
      }
    }
    return std::pair(bits_of_training(opt), opt.loss_totals().loss);
  };
  CHECK(run(false) == run(true));
}

TEST_CASE("exact: what needs the host in a batch is refused in a capture", "[graph][gpu]") {
  nn::Sequential net{nn::Linear(6, 4), nn::BatchNorm1d(4)};
  nn::convert_batch_norm(net, nn::BatchNormMode::whole_batch);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 2}});
  const Tensor x = ones({8, 6}), y = zeros({8}, i64);
  const auto batch = [&] {
    opt.run_batch(8, 2, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    });
  };
  batch();
  const auto error = error_of([&] { graph::Graph::capture(default_device(), batch); });
  CHECK_THAT(error, test::contains("cannot be part of a captured graph"));
  CHECK_THAT(error, test::contains("normalised by the whole batch"));
  batch();
  CHECK(opt.last_report().applied_steps() == 2);
}
