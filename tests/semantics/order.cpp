// The order of a step: un-scale and average, clip by value, clip by norm, decay, update. Each case
// is checked against the step written out by hand, with and without a loss scale.
#include <cmath>
#include <functional>

#include "optim/problem.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

// The weights after a step on the mean gradient (6, -8, 1) from (1, 2, -1), given as two
// micro-steps of unequal weight.
template <class Opt, class Options>
Values stepped(const Options& options, optim::StepOptions step, double* norm = nullptr) {
  Values first;
  for (const optim::LossScale& scale :
       {optim::LossScale::none(), optim::LossScale::fixed(1024), optim::LossScale::fixed(0.125)}) {
    Tensor w = parameter({1, 2, -1}, {3}, f64);
    step.loss_scale = scale;
    Opt opt({w}, options, step);
    opt.backward(objective(w, {20, -30, 1}), 3);
    opt.backward(objective(w, {10, -10, 4}), 2);
    const optim::StepReport report = opt.step();
    REQUIRE(report.applied());
    if (norm != nullptr) *norm = report.norm();
    if (first.empty()) first = values_of(w);
    CHECK(values_of(w) == first);  // the scale changes nothing
  }
  return first;
}

Values minus(const Values& a, const Values& b, double factor = 1) {
  Values out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - factor * b[i]);
  return out;
}

double norm_of(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

const Values kStart{1, 2, -1}, kMean{6, -8, 1};

// kMean limited by value, then by norm.
Values clipped(double value, double norm) {
  Values g = kMean;
  if (value > 0)
    for (double& v : g) v = std::fmax(-value, std::fmin(value, v));
  const double ratio = norm > 0 ? std::fmin(1, norm / (norm_of(g) + 1e-6)) : 1;
  for (double& v : g) v *= ratio;
  return g;
}

TEST_CASE("[S08][S30] averaged, then clipped by value, then by norm, then updated") {
  for (const double value : {0.0, 7.0, 2.0, 100.0})
    for (const double limit : {0.0, 1.0, 3.0, 100.0}) {
      CAPTURE(value, limit);
      double norm = 0;
      const Values w =
          stepped<optim::SGD>(optim::SGDOptions{.lr = 0.5},
                              optim::StepOptions{.clip_norm = limit, .clip_value = value}, &norm);
      expect_close("weights", w, minus(kStart, clipped(value, limit), 0.5), 1e-12);
      CHECK(norm == Approx(norm_of(kMean)).epsilon(1e-12));  // the one before any clipping
    }
}

TEST_CASE("[S08][S30] coupled weight decay is added to the clipped gradient") {
  const Values w = stepped<optim::SGD>(optim::SGDOptions{.lr = 0.5, .weight_decay = 0.25},
                                       optim::StepOptions{.clip_norm = 1, .clip_value = 7});
  const Values gradient = minus(clipped(7, 1), kStart, -0.25);
  expect_close("weights", w, minus(kStart, gradient, 0.5), 1e-12);
}

TEST_CASE("[S08][S30] decoupled weight decay acts on the weights, past clipping and moments") {
  const Values with =
      stepped<optim::AdamW>(optim::AdamWOptions{.lr = 0.5, .eps = 0.5, .weight_decay = 0.25},
                            optim::StepOptions{.clip_norm = 1});
  Values expected;
  const Values g = clipped(0, 1);
  for (std::size_t i = 0; i < 3; ++i)
    expected.push_back(kStart[i] * (1 - 0.5 * 0.25) - 0.5 * g[i] / (std::abs(g[i]) + 0.5));
  expect_close("weights", with, expected, 1e-12);
}

TEST_CASE("[S30] a larger effective batch scales the schedule, and with it decoupled decay") {
  const optim::Schedule base = optim::cosine(0.01, 100);
  const optim::Schedule linear = optim::scaled_for_batch(base, 4);
  const optim::Schedule root = optim::scaled_for_batch(base, 4, optim::BatchScaling::square_root);
  for (const std::int64_t step : {0, 1, 50, 99, 100, 1000}) {
    CHECK(linear.at(step) == Approx(4 * base.at(step)));
    CHECK(root.at(step) == Approx(2 * base.at(step)));
  }
  Tensor w = parameter({1}, {1}, f64);
  optim::AdamW opt({w}, {.lr = linear, .eps = 1, .weight_decay = 0.5}, {.clip_norm = 1e-9});
  opt.backward(objective(w, {1}));
  REQUIRE(opt.step());
  CHECK(w.item() == Approx(1 - 0.04 * 0.5).epsilon(1e-8));
}

}  // namespace
}  // namespace firn::testing
