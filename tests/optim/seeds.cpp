// The seed of an optimizer's backward pass: who computes it, and what a batch without rows does.
#include <algorithm>

#include "firn/runtime/graph.h"
#include "optim/problem.h"

namespace firn::testing {
namespace {

/// A linear classifier and its optimizer, with a loss scale that makes units differ.
struct Classifier {
  Tensor w = parameter(Rng(5).uniforms(3 * 4, -1, 1), {3, 4});
  optim::SGD opt{{w}, {.lr = 0.5}, {.loss_scale = optim::LossScale::dynamic({.init = 1024})}};

  Loss loss(std::int64_t rows) const {
    const Tensor x = sin(arange(rows * 4, f32)).reshape({rows, 4});
    return cross_entropy(linear(x, w), zeros({rows}, i64));
  }
};

TEST_CASE("[S03] a batch without rows is a micro-step of weight 0, wherever it comes") {
  Classifier expected;
  expected.opt.backward(expected.loss(6));
  REQUIRE(expected.opt.step());
  for (const int at : {0, 1}) {
    CAPTURE(at);
    Classifier c;
    for (int pass = 0; pass < 2; ++pass) c.opt.backward(c.loss(pass == at ? 0 : 6));
    const optim::StepReport report = c.opt.step();
    CHECK(report.applied());
    CHECK(report.micro_steps() == 2);
    CHECK(report.weight() == 6);
    CHECK(values_of(c.w) == values_of(expected.w));
  }
  Classifier alone;
  const Bits before = bits_of_training(alone.opt);
  alone.opt.backward(alone.loss(0));
  const optim::StepReport report = alone.opt.step();
  CHECK(report.status() == optim::StepStatus::skipped_empty);
  CHECK(report.micro_steps() == 1);
  CHECK(bits_of_training(alone.opt) == before);
}

/// Launches of the optimizer's own kernel for seeds in a cycle with these backward passes.
std::int64_t launches_for_initial_gradients(const std::function<void(Classifier&)>& passes) {
  Classifier c;
  const auto cycle = [&] {
    passes(c);
    c.opt.step();
  };
  cycle();
  const graph::Graph graph = graph::Graph::capture(default_device(), cycle);
  INFO(graph.summary());
  const std::vector<std::string> names = graph.names();
  CHECK(std::count(names.begin(), names.end(), "optim_update") == 1);
  return std::count(names.begin(), names.end(), "optim_begin");
}

TEST_CASE("a cycle's first loss computes its own seed and saves a launch", "[gpu]") {
  if (default_device().is_cpu()) return;
  CHECK(launches_for_initial_gradients([](Classifier& c) { c.opt.backward(c.loss(6)); }) == 0);
  // The second pass may change the unit of what the first has left in the arenas.
  CHECK(launches_for_initial_gradients([](Classifier& c) {
          c.opt.backward(c.loss(6));
          c.opt.backward(c.loss(6));
        }) == 1);
  // A hook sees the seed before the loss does.
  CHECK(launches_for_initial_gradients([](Classifier& c) {
          const Loss loss = c.loss(6);
          add_hook(loss.sum, [](const Tensor&) { return Tensor(); });
          c.opt.backward(loss);
        }) == 1);
  CHECK(launches_for_initial_gradients([](Classifier& c) { c.opt.backward(sum(c.w), 1); }) == 1);
  CHECK(launches_for_initial_gradients([](Classifier& c) { c.opt.backward(c.loss(0)); }) == 1);
}

}  // namespace
}  // namespace firn::testing
