// A scale that is measured first, cycles that are computed again after an overflow, and optimizers
// that share a scale.
#include <limits>

#include "semantics/mlp.h"
#include "semantics/spoil.h"

namespace firn::testing {
namespace {

using optim::DynamicLossScale;
using optim::LossScale;
using optim::SkipPolicy;
using optim::StepStatus;

TEST_CASE("[S14] the first scale is the largest that leaves the measured gradient 4 bits in f16") {
  for (const double largest : {1.0, 1e-3, 3e-7, 0.37}) {
    CAPTURE(largest);
    Tensor w = parameter({1, 1, 1}, {3});
    optim::SGD opt({w}, {.lr = 1e-3}, {.loss_scale = LossScale::dynamic({.calibrate = true})});
    CHECK(opt.loss_scale() == 1);
    opt.backward(objective(w, {0, 0, 0}));  // a gradient of zeros measures nothing
    REQUIRE(opt.step());
    CHECK(opt.loss_scale() == 1);
    opt.backward(objective(w, {0.5 * largest, -4 * largest, 0}), 2);
    opt.backward(objective(w, {0, 0, largest}), 2);
    REQUIRE(opt.step());
    const double scale = opt.loss_scale();
    CHECK(((scale * largest <= 65504.0 / 16 && 2 * scale * largest > 65504.0 / 16) ||
           scale == 0x1p24));
    opt.backward(objective(w, {1e-9 * largest}));
    REQUIRE(opt.step());
    CHECK(opt.loss_scale() == scale);  // measured once
  }
}

TEST_CASE("[S14] a calibrated scale loses no cycle where one that begins too high loses many") {
  for (const bool calibrate : {false, true}) {
    CAPTURE(calibrate);
    Tensor w = parameter({1, 1}, {2}, f16);
    optim::SGD opt({w}, {.lr = 1e-6},
                   {.loss_scale = LossScale::dynamic({.init = 0x1p24, .calibrate = calibrate})});
    int skipped = 0;
    for (int i = 0; i < 20; ++i) {
      opt.backward(objective(w, {100, 300}));
      skipped += opt.step().skipped() ? 1 : 0;
    }
    CHECK(skipped == (calibrate ? 0 : 9));  // 2^15, the gradient of the f16 product, is below 65504
    CHECK(opt.loss_scale() == (calibrate ? 8 : 0x1p15));
  }
}

// What four cycles of three micro-steps with dropout and a running sum leave behind, where every
// gradient at a scale above `limit` overflows at micro-step `at`.
struct Retried {
  Bits training, buffer;
  std::int64_t calls = 0;
  double scale = 0;
};
Retried retried(const LossScale& scale, double limit, std::int64_t at) {
  manual_seed(7);
  Tensor w = parameter(Rng(2).uniforms(40, -1, 1), {40});
  const Tensor running = zeros({40});
  optim::AdamW opt({w}, {.lr = 0.1}, {.loss_scale = scale});
  opt.restore_on_retry({running});
  Retried out;
  Rng data(3);
  for (int cycle = 0; cycle < 4; ++cycle) {
    const Tensor x = make(data.uniforms(3 * 40, -1, 1), {3, 40}, f32);
    const optim::StepReport report = opt.run_cycle(3, [&](std::int64_t i) {
      ++out.calls;
      const Tensor y = dropout(w * x[i], 0.5);
      {
        const NoGrad guard;
        copy_(running, 0.9 * running + 0.1 * y.detach());
      }
      const Tensor loss = sum(y * y);
      const bool overflows = i == at && opt.loss_scale() > limit;
      return Loss{overflows ? spoilt(loss) : loss, tensor({40.F}).reshape({})};
    });
    REQUIRE(report.applied());
    REQUIRE(report.weight() == 120);
  }
  out.training = bits_of_training(opt);
  out.buffer = bits_of(running);
  out.scale = opt.loss_scale();
  return out;
}

TEST_CASE("[S15] a cycle that overflowed is computed again as if the first try had not been") {
  const Retried plain = retried(LossScale::fixed(256), 256, 0);
  CHECK(plain.calls == 12);
  for (const std::int64_t at : {0, 1, 2}) {
    CAPTURE(at);
    const Retried again = retried(
        LossScale::dynamic({.init = 2048, .on_overflow = optim::OverflowPolicy::retry}), 256, at);
    CHECK(again.scale == 256);
    CHECK(again.calls == 12 + 3 * 3);  // three halvings, all in the first cycle
    CHECK(again.training == plain.training);
    CHECK(again.buffer == plain.buffer);
  }
}

TEST_CASE("[S15] a retry ends at the smallest scale, and for a loss that is not finite") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {},
                 {.loss_scale = LossScale::dynamic(
                      {.init = 16, .min = 4, .on_overflow = optim::OverflowPolicy::retry})});
  int calls = 0;
  const auto cycle = [&](bool finite_loss) {
    calls = 0;
    return opt.run_cycle(2, [&](std::int64_t) {
      ++calls;
      const Tensor sum =
          objective(w, {finite_loss ? 1.0 : std::numeric_limits<double>::infinity()});
      return Loss{spoilt(sum), ones({})};
    });
  };
  CHECK(cycle(true).status() == StepStatus::skipped_non_finite);
  CHECK(calls == 2 * 3);  // at 16, 8 and 4
  CHECK(opt.loss_scale() == 4);
  opt.set_loss_scale(16);
  CHECK(cycle(false).non_finite() == optim::NonFinite::loss);
  CHECK(calls == 2);
  CHECK(opt.loss_scale() == 16);
  CHECK(w.item() == 1);
}

TEST_CASE("[S15] a cycle whose function throws is dropped") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  const auto loss = [&](std::int64_t i) {
    if (i == 2) throw Error("test", "no more data");
    return Loss{objective(w, {100}), ones({})};
  };
  CHECK(error_of([&] { opt.run_cycle(4, loss); }).find("no more data") != std::string::npos);
  CHECK(gradients_are_zero(opt));
  CHECK(opt.run_cycle(2, loss).weight() == 2);
  CHECK(w.item() == -99);
}

// Two optimizers on one scale that grows after two clean cycles.
struct Pair {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1});
  optim::LossScaler scaler{LossScale::dynamic({.init = 1024, .growth_interval = 2})};
  optim::AdamW first{{a}, {.lr = 0.1}, {.scaler = scaler}};
  optim::SGD second{{b}, {.lr = 0.1}, {.scaler = scaler}};

  // The statuses of both after a cycle with or without overflow in each.
  std::vector<StepStatus> cycle(bool first_bad, bool second_bad, SkipPolicy policy) {
    const auto loss = [](const Tensor& w, bool bad) {
      const Tensor sum = objective(w, {0.5});
      return bad ? spoilt(sum) : sum;
    };
    first.backward(loss(a, first_bad));
    second.backward(loss(b, second_bad));
    const auto reports = optim::step_all({&first, &second}, policy);
    REQUIRE(reports.size() == 2);
    return {reports[0].status(), reports[1].status()};
  }
};
using Statuses = std::vector<StepStatus>;

TEST_CASE("[S16] one scale for several optimizers moves once per cycle") {
  for (const SkipPolicy policy : {SkipPolicy::all, SkipPolicy::each}) {
    Pair pair;
    CHECK(pair.cycle(true, true, policy) ==
          Statuses{StepStatus::skipped_non_finite, StepStatus::skipped_non_finite});
    CHECK(pair.scaler.scale() == 512);
    CHECK(pair.first.loss_scale() == 512);
    CHECK(pair.second.loss_scale() == 512);
    pair.cycle(false, true, policy);
    CHECK(pair.scaler.scale() == 256);
    for (const double scale : {256, 512, 512, 1024}) {
      CHECK(pair.cycle(false, false, policy) == Statuses{StepStatus::applied, StepStatus::applied});
      CHECK(pair.scaler.scale() == scale);
    }
  }
}

TEST_CASE("[S16] where one optimizer overflows, all skip or only that one, by choice") {
  Pair all;
  const Bits first = bits_of_training(all.first), second = bits_of_training(all.second);
  CHECK(all.cycle(true, false, SkipPolicy::all) ==
        Statuses{StepStatus::skipped_non_finite, StepStatus::skipped_partner});
  CHECK(all.cycle(false, true, SkipPolicy::all) ==
        Statuses{StepStatus::skipped_partner, StepStatus::skipped_non_finite});
  CHECK(bits_of_training(all.first) == first);
  CHECK(bits_of_training(all.second) == second);
  CHECK(gradients_are_zero(all.first));
  CHECK(gradients_are_zero(all.second));

  Pair each;
  CHECK(each.cycle(true, false, SkipPolicy::each) ==
        Statuses{StepStatus::skipped_non_finite, StepStatus::applied});
  CHECK(bits_of_training(each.first) == first);
  CHECK(each.b.item() == Approx(0.95));
}

}  // namespace
}  // namespace firn::testing
