// The unit in which gradients are added up under a loss scale: what the backward pass begins with,
// and what becomes of the sum when the unit changes in mid-cycle.
#include <cmath>

#include "kernels/math/optim/step_state.h"
#include "optim/problem.h"
#include "runtime/memory/fail_allocation.h"
#include "support/small_grids.h"

namespace firn::testing {
namespace {

using optim::LossScale;

// What the backward pass of a micro-step was begun with.
double seed_of_backward(optim::Optimizer& opt, const Tensor& w, double weight) {
  double seed = 0;
  Tensor loss = objective(w, {1});
  add_hook(loss, [&](const Tensor& grad) {
    seed = grad.item();
    return Tensor();
  });
  opt.backward(loss, weight);
  return seed;
}

TEST_CASE(
    "[S06] a scale of 65536 is that of a mean: the seed carries a power of two near 1/weight") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {}, {.loss_scale = LossScale::fixed(65536)});
  for (const auto& [weight, seed] : std::vector<std::pair<double, double>>{
           {1, 65536}, {64, 1024}, {60, 1024}, {96, 512}, {0.25, 262144}, {80, 1024}}) {
    CAPTURE(weight);
    CHECK(seed_of_backward(opt, w, weight) == seed);
    const optim::StepReport report = opt.step();
    CHECK(report.loss_scale() == 65536);
    CHECK(report.norm() == 1 / weight);  // exact: un-scaled by what was seeded
  }
}

TEST_CASE("[S06] without loss scaling the unit is 1, whatever the weight") {
  for (const DType dtype : {f32, f64}) {
    Tensor w = parameter({1}, {1}, dtype);
    optim::SGD opt({w}, {});
    CHECK(opt.loss_scale() == 1);
    for (const double weight : {1.0, 1000.0}) {
      CHECK(seed_of_backward(opt, w, weight) == 1);
      opt.step();
    }
    CHECK(error_of([&] { opt.set_loss_scale(2); }).find("no loss scaling") != std::string::npos);
  }
}

TEST_CASE("[S05] micro-batches of very different weights share one unit, exactly") {
  Tensor w = parameter({0, 0}, {2});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 4, .loss_scale = LossScale::fixed(1024)});
  const auto sum_so_far = [&] { return values_of(state_of(opt, "parameters.0.gradient")); };
  opt.backward(objective(w, {3, -1}), 16);  // unit 64
  CHECK(sum_so_far() == std::vector<double>{192, -64});
  opt.step();
  opt.backward(objective(w, {1, 1}), 24);  // 1024 / 16 would do: within a factor 2, the unit stays
  CHECK(sum_so_far() == std::vector<double>{256, 0});
  opt.step();
  opt.backward(objective(w, {1, 0}), 1024);  // unit 1
  CHECK(sum_so_far() == std::vector<double>{5, 0});
  opt.step();
  opt.backward(objective(w, {1, 0}), 0);  // says nothing about the unit
  CHECK(sum_so_far() == std::vector<double>{6, 0});
  const optim::StepReport report = opt.step();
  REQUIRE(report.applied());
  CHECK(report.weight() == 16 + 24 + 1024);
  CHECK(values_of(w)[0] == Approx(-6.0 / 1064).epsilon(1e-6));
}

TEST_CASE("[S05] a scale set in mid-cycle takes hold with the next micro-step") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 3, .loss_scale = LossScale::fixed(8)});
  opt.backward(objective(w, {5}));
  opt.step();
  opt.set_loss_scale(4);
  CHECK(values_of(state_of(opt, "parameters.0.gradient")) == std::vector<double>{40});
  opt.backward(objective(w, {1}));
  CHECK(opt.step().loss_scale() == 4);
  CHECK(values_of(state_of(opt, "parameters.0.gradient")) == std::vector<double>{24});
  opt.set_loss_scale(4096);
  opt.backward(objective(w, {1}));
  const optim::StepReport report = opt.step();
  CHECK(report.loss_scale() == 4096);
  CHECK(w.item() == Approx(-7.0 / 3));
}

TEST_CASE("[S05] an arena larger than a grid of threads is re-expressed whole") {
  const std::int64_t n = 600'001;
  Tensor w = zeros({n}).set_requires_grad();
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 3, .loss_scale = LossScale::fixed(1024)});
  for (const auto& [weight, gradient] : {std::pair{16.0, 64.0}, {1024.0, 2.0}}) {
    opt.backward(sum(w), weight);  // the unit is 64, then 1
    opt.step();
    const Tensor g = state_of(opt, "parameters.0.gradient");
    CHECK(min(g).item() == gradient);
    CHECK(max(g).item() == gradient);
  }
}

#ifdef FIRN_HAS_CUDA
TEST_CASE("[S17] more parameters than a grid has threads: those without gradient stay") {
  const SmallGrids guard(1);
  std::vector<Tensor> all;
  for (int i = 0; i < 700; ++i) all.push_back(parameter({1}, {1}));
  optim::SGD opt(all, {.lr = 1, .weight_decay = 0.5});
  std::vector<Tensor> used;
  for (std::size_t i = 0; i < all.size(); i += 3) used.push_back(all[i]);
  opt.backward(sum(cat(used)), 1);
  opt.step();
  for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i].item() == (i % 3 == 0 ? -0.5 : 1.0));
}
#endif

TEST_CASE("[S06] the power of two that is nearest to a weight") {
  using math::nearest_power;
  CHECK(nearest_power(1) == 1);
  CHECK(nearest_power(1.4) == 1);
  CHECK(nearest_power(1.5) == 2);
  CHECK(nearest_power(0x1p-1000) == 0x1p-1000);
  CHECK(nearest_power(3e300) == std::ldexp(1.0, 998));
  for (const double weight : {0x1p-200, 1e300, 0.0, -1.0, std::nan(""), HUGE_VAL}) {
    const double unit = math::unit_for(65536, weight);
    CHECK(unit >= 0x1p-126);  // a normal f32
    CHECK(unit <= 0x1p127);
  }
}

TEST_CASE("[S13] f16 models get a dynamic scale, others none, and options say otherwise") {
  const auto scale = [](DType dtype, const LossScale& policy) {
    Tensor w = parameter({1}, {1}, dtype);
    return optim::SGD({w}, {}, {.loss_scale = policy}).loss_scale();
  };
  CHECK(scale(f16, {}) == 65536);
  CHECK(scale(bf16, {}) == 1);
  CHECK(scale(f32, {}) == 1);
  CHECK(scale(f64, {}) == 1);
  CHECK(scale(f16, LossScale::none()) == 1);
  CHECK(scale(f32, LossScale::dynamic()) == 65536);
  CHECK(scale(bf16, LossScale::fixed(128)) == 128);
}

TEST_CASE("[S24] an optimizer says in a line what its options come to") {
  Tensor w = parameter({1}, {1}, f16), v = parameter({1}, {1});
  optim::AdamW opt({w, v}, {.lr = 1e-3}, {.accumulate = {{0, 4}, {2, 1}}, .clip_norm = 1});
  const std::string line = optim::describe(opt, 16);
  CHECK(
      line.starts_with("AdamW: 16 x 4 = 64 samples per step, f16 parameters with f32 masters, "
                       "f32 parameters, dynamic loss scale from 65536, clip norm 1, lr "));
  opt.set_epoch(2);
  CHECK(opt.cycle_length() == 1);
  CHECK(optim::describe(opt).starts_with("AdamW: 1 micro-step per step, "));
}

TEST_CASE("[S24] the place in the cycle is part of the state") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {}, {.accumulate = {{0, 2}, {3, 5}}});
  const auto cycle = [&] { return values_of(state_of(opt, "cycle")); };
  CHECK(cycle() == std::vector<double>{0, 0, 0, 0, 0, 0});
  for (int i = 0; i < 3; ++i) {
    opt.backward(objective(w, {1}));
    opt.step();
  }
  opt.set_epoch(3);
  CHECK(cycle() == std::vector<double>{1, 3, 2, 1, 1, 1});
}

TEST_CASE("[S21] the step of an optimizer with every option needs no memory") {
  Tensor a = parameter({1, 2}, {2}, f16), b = parameter({3}, {1});
  const optim::LossScaler scaler(LossScale::dynamic({.init = 1024}));
  optim::AdamW opt({a, b}, {},
                   {.accumulate = 2,
                    .clip_norm = 1,
                    .clip_value = 1,
                    .scaler = scaler,
                    .ema = 0.9,
                    .stochastic_rounding = true});
  for (int i = 0; i < 4; ++i) {
    opt.backward(objective(a, {0.25}) + objective(b, {1}));
    const FailAllocation fail(0, true);
    CHECK(optim::step_all({&opt})[0].applied() == (i % 2 == 1));
  }
}

}  // namespace
}  // namespace firn::testing
