// How many micro-steps make a step, what becomes of a cycle that is cut short, and the loss that is
// logged.

#include "semantics/mlp.h"

namespace firn::testing {
namespace {

using optim::Accumulate;
using optim::Partial;
using optim::StepStatus;

// Micro-steps of each of the first `cycles` cycles.
std::vector<std::int64_t> lengths(optim::Optimizer& opt, const Tensor& w, int cycles) {
  std::vector<std::int64_t> out;
  for (int c = 0; c < cycles; ++c)
    for (std::int64_t n = 1;; ++n) {
      REQUIRE(n < 50);
      opt.backward(objective(w, {1}));
      const optim::StepReport report = opt.step();
      if (report.status() == StepStatus::accumulating) continue;
      REQUIRE(report.applied());
      REQUIRE(report.weight() == static_cast<double>(n));
      out.push_back(n);
      break;
    }
  return out;
}

TEST_CASE("[S24] a cycle is a number of micro-steps, a table by epoch, or a function of it") {
  using Lengths = std::vector<std::int64_t>;
  const auto run = [](const Accumulate& accumulate) {
    Tensor w = parameter({1}, {1});
    optim::SGD opt({w}, {.lr = 1e-3}, {.accumulate = accumulate});
    Lengths all;
    for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
      opt.set_epoch(epoch);
      const Lengths two = lengths(opt, w, 2);
      CHECK(two[0] == two[1]);
      all.push_back(two[0]);
    }
    return all;
  };
  CHECK(run(1) == Lengths{1, 1, 1, 1, 1, 1});
  CHECK(run(3) == Lengths{3, 3, 3, 3, 3, 3});
  CHECK(run({{0, 8}, {4, 2}}) == Lengths{8, 8, 8, 8, 2, 2});
  CHECK(run(Accumulate([](std::int64_t epoch) { return 1 + epoch; })) == Lengths{1, 2, 3, 4, 5, 6});
}

TEST_CASE("[S24] a change of the number takes effect when the next cycle begins") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1e-3}, {.accumulate = {{0, 4}, {1, 2}}});
  const auto micro_step = [&] {
    opt.backward(objective(w, {1}));
    return opt.step().status();
  };
  CHECK(micro_step() == StepStatus::accumulating);
  opt.set_epoch(1);
  CHECK(micro_step() == StepStatus::accumulating);
  CHECK(micro_step() == StepStatus::accumulating);
  CHECK(micro_step() == StepStatus::applied);
  CHECK(micro_step() == StepStatus::accumulating);
  CHECK(micro_step() == StepStatus::applied);
}

TEST_CASE("[S24] numbers of micro-steps below 1 and tables out of order are refused") {
  CHECK(error_of([] { Accumulate(0); }).find("0") != std::string::npos);
  CHECK(error_of([] { Accumulate{{1, 4}}; }).find("epoch") != std::string::npos);
  CHECK(error_of([] { Accumulate{{0, 4}, {0, 2}}; }).find("epoch") != std::string::npos);
  CHECK(error_of([] { Accumulate{{0, 4}, {2, -1}}; }).find("-1") != std::string::npos);
  const Accumulate broken([](std::int64_t epoch) { return 1 - epoch; });
  CHECK(broken.at(0) == 1);
  CHECK(error_of([&] { broken.at(1); }).find("0") != std::string::npos);
}

// Two of four micro-steps, then `partial`.
struct HalfCycle {
  Tensor w = parameter({0}, {1}, f64);
  optim::SGD opt{{w}, {.lr = 1}, {.accumulate = 4}};
  optim::StepReport report;

  explicit HalfCycle(Partial partial)
      : report((micro_step(3, 5), micro_step(5, 11), opt.flush(partial))) {}
  optim::StepReport micro_step(double gradient, double weight) {
    opt.backward(objective(w, {gradient}), weight);
    return opt.step();
  }
};

TEST_CASE("[S04] a cycle cut short is applied with the weight that it has") {
  HalfCycle half(Partial::apply);
  CHECK(half.report.applied());
  CHECK(half.report.weight() == 16);
  CHECK(half.report.applied_steps() == 1);
  CHECK(half.w.item() == -0.5);
  CHECK(gradients_are_zero(half.opt));
  for (int m = 0; m < 3; ++m) CHECK(half.micro_step(4, 4).status() == StepStatus::accumulating);
  CHECK(half.micro_step(4, 4).weight() == 16);  // the next cycle is whole
  CHECK(half.w.item() == -1.5);
}

TEST_CASE("[S04] a cycle cut short can be completed later") {
  HalfCycle half(Partial::carry);
  CHECK(half.report.status() == StepStatus::accumulating);
  CHECK(half.w.item() == 0);
  CHECK(half.micro_step(4, 8).status() == StepStatus::accumulating);
  const optim::StepReport report = half.micro_step(4, 8);
  CHECK(report.applied());
  CHECK(report.weight() == 32);
  CHECK(half.w.item() == -0.5);
}

TEST_CASE("[S04] a cycle cut short can be dropped") {
  HalfCycle half(Partial::drop);
  CHECK(!half.report.applied());
  CHECK(half.report.applied_steps() == 0);
  CHECK(half.w.item() == 0);
  CHECK(gradients_are_zero(half.opt));
  for (int m = 0; m < 3; ++m) CHECK(half.micro_step(4, 2).status() == StepStatus::accumulating);
  CHECK(half.micro_step(4, 2).weight() == 8);
  CHECK(half.w.item() == -2);
}

TEST_CASE("[S04] there is nothing to flush after a whole cycle") {
  Tensor w = parameter({1}, {1});
  optim::AdamW opt({w}, {.lr = 0.1}, {.accumulate = 2});
  lengths(opt, w, 3);
  for (const Partial partial : {Partial::apply, Partial::carry, Partial::drop}) {
    const Bits before = bits_of_training(opt);
    const optim::StepReport report = opt.flush(partial);
    CHECK(!report.applied());
    CHECK(report.applied_steps() == 3);
    CHECK(report.skipped_steps() == 0);
    CHECK(bits_of_training(opt) == before);
  }
}

TEST_CASE(
    "[S27] the logged loss is the mean over all that the cycle has seen, however it was cut") {
  const Mlp net(6, 5, 3, f64);
  Rng rng(4);
  const Tensor x = make(rng.uniforms(64 * 6, -1, 1), {64, 6});
  std::vector<double> labels;
  for (int i = 0; i < 64; ++i) labels.push_back(i % 3 == 0 ? -100.0 : double(rng.below(3)));
  const Tensor y = make(labels, {64}, i64);
  const double whole = cross_entropy(net(x), y).item();
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{64}, {16, 16, 16, 16}, {5, 11, 48}, {1, 63}}) {
    optim::SGD opt(net.parameters(), {.lr = 0},
                   {.accumulate = static_cast<std::int64_t>(sizes.size())});
    std::int64_t at = 0;
    for (const std::int64_t n : sizes) {
      opt.backward(cross_entropy(net(x.slice(0, at, at + n)), y.slice(0, at, at + n)));
      at += n;
      const optim::StepReport report = opt.step();
      CHECK(report.applied() == (at == 64));
      if (report.applied()) CHECK(report.loss() == Approx(whole).epsilon(1e-12));
    }
  }
}

}  // namespace
}  // namespace firn::testing
