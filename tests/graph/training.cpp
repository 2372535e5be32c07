// Whole training steps as graphs, against the same steps given to the device one kernel at a time.
#include <memory>
#include <string>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "firn/train/graph_step.h"
#include "graph/steps.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::expect_same;
using firn::testing::take_steps;
using firn::testing::values_of;
using graph::Step;

namespace {

struct Setting {
  const char* name;
  std::int64_t accumulate = 1;
  bool half = false;      // f16 parameters with f32 masters and a dynamic loss scale
  bool overflow = false;  // some inputs are infinite
  bool dropout = false;
  bool eight_bit = false;  // the moments are in 8 bits
  enum class Rule { adamw, muon, adafactor, custom } rule = Rule::adamw;
};

std::unique_ptr<optim::Optimizer> make_optimizer(const Setting& s, const std::vector<Tensor>& p,
                                                 const optim::StepOptions& step) {
  const optim::Schedule lr = optim::cosine(1e-2, 40);
  switch (s.rule) {
    case Setting::Rule::muon:
      return std::make_unique<optim::Muon>(p, optim::MuonOptions{.lr = lr}, step);
    case Setting::Rule::adafactor:
      return std::make_unique<optim::Adafactor>(p, optim::AdafactorOptions{.lr = lr}, step);
    case Setting::Rule::custom:
      return std::make_unique<optim::Custom>(
          p,
          optim::CustomOptions{.lr = lr,
                               .states = {{"momentum"}},
                               .update = [](const optim::CustomInput& in) -> optim::CustomUpdate {
                                 const Tensor b = 0.9 * in.states[0] + in.gradient / sqrt(in.t);
                                 return {in.weight - in.lr * b, {b}};
                               }},
          step);
    default:
      return std::make_unique<optim::AdamW>(
          p,
          optim::AdamWOptions{
              .lr = lr,
              .weight_decay = 0.01,
              .state = s.eight_bit ? optim::StatePrecision::bits8 : optim::StatePrecision::full,
              .min_8bit_size = 0},
          step);
  }
}

struct Run {
  std::vector<std::vector<double>> weights;
  double scale = 0, lr = 0;
  std::int64_t applied = 0, skipped = 0;
  std::uint64_t offset = 0;
  std::uint64_t waits = 0;
};

constexpr std::int64_t kBatch = 8, kIn = 12, kHidden = 16, kOut = 4;

Run run_training(const Setting& s, bool as_graph, int micro_steps) {
  manual_seed(77);
  const DType t = s.half ? f16 : f32;
  const auto parameter = [&](const Shape& shape) {
    return cast(randn(shape, {.stddev = 0.3}), t).set_requires_grad();
  };
  const Tensor w1 = parameter({kHidden, kIn}), b1 = parameter({kHidden}),
               w2 = parameter({kOut, kHidden});
  optim::StepOptions options{.accumulate = s.accumulate, .clip_norm = 1};
  if (s.half) options.loss_scale = optim::LossScale::dynamic({.growth_interval = 5});
  const std::unique_ptr<optim::Optimizer> owned = make_optimizer(s, {w1, b1, w2}, options);
  optim::Optimizer& opt = *owned;

  const Tensor x = zeros({kBatch, kIn}, t), y = zeros({kBatch}, i64);
  const auto work = [&] {
    Tensor h = relu(linear(x, w1, b1));
    if (s.dropout) h = dropout(h, 0.25, true);
    opt.backward(cross_entropy(linear(h, w2), y));
    opt.step();
  };
  Run run;
  run.waits = take_steps(opt, {x, y, kOut, s.overflow}, micro_steps, as_graph, work);
  const optim::StepReport report = opt.last_report();
  run.applied = report.applied_steps();
  run.skipped = report.skipped_steps();
  for (const optim::NamedState& state : opt.state()) {
    if (is_floating(state.tensor.dtype())) run.weights.push_back(values_of(state.tensor));
  }
  run.scale = opt.loss_scale();
  run.lr = opt.lr();
  run.offset = default_generator().get().offset;
  return run;
}

}  // namespace

TEST_CASE("[S25] replayed training steps are equal to eager ones, to the bit", "[graph][once]") {
  const Setting settings[] = {
      {.name = "f32"},
      {.name = "f32, dropout, 4 micro-steps", .accumulate = 4, .dropout = true},
      {.name = "f16, dynamic scale, overflows, dropout",
       .half = true,
       .overflow = true,
       .dropout = true},
      {.name = "f32, states in 8 bits", .overflow = true, .eight_bit = true},
      {.name = "Muon, f16, overflows",
       .accumulate = 2,
       .half = true,
       .overflow = true,
       .rule = Setting::Rule::muon},
      {.name = "Adafactor", .overflow = true, .rule = Setting::Rule::adafactor},
      {.name = "Custom, f16, overflows",
       .half = true,
       .overflow = true,
       .rule = Setting::Rule::custom},
      {.name = "f16, 3 micro-steps, overflows, dropout",
       .accumulate = 3,
       .half = true,
       .overflow = true,
       .dropout = true},
  };
  for (const Setting& s : settings) {
    INFO(s.name);
    const Run eager = run_training(s, false, 200), replayed = run_training(s, true, 200);
    CHECK(eager.applied == replayed.applied);
    CHECK(eager.skipped == replayed.skipped);
    CHECK(eager.applied > 40);
    if (s.overflow) CHECK(eager.skipped >= (s.accumulate == 1 ? 10 : 9));
    CHECK(eager.scale == replayed.scale);
    CHECK(eager.lr == replayed.lr);
    CHECK(eager.offset == replayed.offset);
    REQUIRE(eager.weights.size() == replayed.weights.size());
    for (std::size_t i = 0; i < eager.weights.size(); ++i)
      expect_same("state " + std::to_string(i), replayed.weights[i], eager.weights[i]);
    CHECK(eager.waits == 0);
    CHECK(replayed.waits == 0);
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("graph: training steps have the same bits in every order of the streams",
          "[graph][gpu][once]") {
  const Setting s{.name = "lazy", .accumulate = 2, .half = true, .overflow = true, .dropout = true};
  const Run want = run_training(s, false, 24);
  const firn::testing::LazyStreams lazy;
  for (int order = 0; order < 50; ++order) {
    const Run got = run_training(s, order % 2 == 1, 24);
    CHECK(got.applied == want.applied);
    CHECK(got.weights == want.weights);
  }
}
#endif

TEST_CASE("graph: a step runs, then records, then replays, for each variant", "[graph]") {
  const bool device = default_device().is_cuda();
  Tensor x = zeros({4});
  int runs = 0;
  std::int64_t rows = 4;
  Step step(
      default_device(),
      [&] {
        ++runs;
        add_(x, full({4}, static_cast<double>(rows), f32));
      },
      [&] { return rows; });
  for (int i = 0; i < 5; ++i) step();
  CHECK(runs == (device ? 2 : 5));
  CHECK((step.graph(4) != nullptr) == device);
  rows = 2;  // the last batch
  CHECK(step.variant() == 2);
  CHECK(step.graph(2) == nullptr);
  for (int i = 0; i < 3; ++i) step();
  rows = 4;
  step();
  CHECK(runs == (device ? 4 : 9));
  CHECK(values_of(x) == std::vector<double>(4, 5 * 4 + 3 * 2 + 4));
  step.reset();
  CHECK(step.graph(4) == nullptr);
  step();
  CHECK(runs == (device ? 5 : 10));
}

TEST_CASE("graph: a step whose work throws does the same again", "[graph][gpu]") {
  Tensor x = zeros({4});
  int runs = 0;
  Step step(default_device(), [&] {
    if (++runs == 2) throw std::runtime_error("no");
    add_(x, full({4}, 1, f32));
  });
  step();
  CHECK_THROWS_AS(step(), std::runtime_error);
  CHECK(step.graph() == nullptr);
  for (int i = 0; i < 4; ++i) step();
  CHECK(step.graph() != nullptr);
  CHECK(runs == 3);
  CHECK(values_of(x) == std::vector<double>(4, 5));
}

TEST_CASE("graph: steps of an optimizer come in variants by their place in the cycle",
          "[graph][gpu]") {
  const Tensor w = full({4}, 1, f32).set_requires_grad();
  optim::SGD opt({w}, {.lr = 0.5}, {.accumulate = 4});
  int runs = 0;
  Step step(opt, [&] {
    ++runs;
    opt.backward(sum(w * 2.0), 1);
    opt.step();
  });
  CHECK(step.variant() == 2);
  for (int i = 0; i < 40; ++i) step();
  CHECK(runs == 6);  // first, middle and last, each run once and recorded once
  CHECK(step.graph(2) != nullptr);
  CHECK(step.graph(0) != nullptr);
  CHECK(step.graph(1) != nullptr);
  CHECK(values_of(w) == std::vector<double>(4, 1 - 10 * 0.5 * 2));
  CHECK(opt.last_report().applied_steps() == 10);
}

TEST_CASE("graph: a micro-step is not replayed where other gradients are the first of the cycle",
          "[graph][gpu]") {
  const Device d = default_device();
  const Tensor w = full({4}, 0, f32).set_requires_grad(), v = full({4}, 0, f32).set_requires_grad();
  optim::SGD opt({w, v}, {.lr = 1}, {.accumulate = 4});
  const auto reach_w = [&] {
    opt.backward(sum(w * 4.0), 1);
    opt.step();
  };
  const auto reach_v = [&] {
    opt.backward(sum(v * 4.0), 1);
    opt.step();
  };
  const auto refusal = [](graph::Graph& g) { return error_of([&] { g.replay(); }); };
  reach_w();
  graph::Graph first_of_v = graph::Graph::capture(d, reach_v);
  CHECK(refusal(first_of_v).find("replayed when it had one") != std::string::npos);
  graph::Graph second_of_v = graph::Graph::capture(d, reach_v);
  CHECK(values_of(v.grad()) == std::vector<double>(4, 8));
  CHECK(opt.cycle_position() == 3);
  reach_w();  // the end of the cycle
  CHECK(values_of(w) == std::vector<double>(4, -2));
  CHECK(values_of(v) == std::vector<double>(4, -2));

  reach_w();
  CHECK(refusal(second_of_v).find("replayed when it had none") != std::string::npos);
  CHECK(!v.grad().defined());
  CHECK(opt.cycle_position() == 1);
  first_of_v.replay();
  CHECK(values_of(v.grad()) == std::vector<double>(4, 4));
  second_of_v.replay();
  CHECK(opt.cycle_position() == 3);
  reach_v();
  CHECK(values_of(w) == std::vector<double>(4, -3));
  CHECK(values_of(v) == std::vector<double>(4, -5));
}
