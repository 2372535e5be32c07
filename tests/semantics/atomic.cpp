// A step that finds a gradient that is not finite has never been: an infinity or a NaN is planted
// in every parameter of a model, at every micro-step of a cycle.
#include <cmath>
#include <limits>

#include "semantics/mlp.h"
#include "support/device/slow_device.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMicroSteps = 3;

// A model in training whose gradients can be spoilt.
struct Training {
  Mlp net;
  optim::AdamW opt;
  Rng rng{5};
  Tensor x, y;
  std::int64_t bad_parameter = -1;
  double bad_value = 0;

  Training(DType dtype, const optim::StepOptions& options)
      : net(6, 5, 3, dtype),
        opt(net.parameters(), {.lr = optim::step_decay(0.05, 4, 0.5), .weight_decay = 0.1},
            options) {
    x = make(rng.uniforms(12 * 6, -1, 1), {12, 6}, dtype);
    std::vector<double> labels;
    for (int i = 0; i < 12; ++i) labels.push_back(double(rng.below(3)));
    y = make(labels, {12}, i64);
    const std::vector<Tensor> parameters = net.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      add_hook(parameters[i], [this, i](const Tensor& grad) {
        if (static_cast<std::int64_t>(i) != bad_parameter) return Tensor();
        std::vector<double> values = values_of(grad);
        values[static_cast<std::size_t>(rng.below(grad.numel()))] = bad_value;
        return make(values, grad.shape(), grad.dtype());
      });
  }

  // A cycle of three micro-steps; `value` is put into the gradient of `parameter` at `micro_step`.
  optim::StepReport cycle(std::int64_t parameter = -1, std::int64_t micro_step = -1,
                          double value = 0) {
    for (std::int64_t m = 0; m < kMicroSteps; ++m) {
      bad_parameter = m == micro_step ? parameter : -1;
      bad_value = value;
      const std::int64_t from = m == 0 ? 0 : 2 + 3 * m, to = 5 + 3 * m;  // 5, 3 and 3 of 12 rows
      opt.backward(cross_entropy(net(x.slice(0, from, to)), y.slice(0, from, to)));
    }
    return opt.step();
  }
};

TEST_CASE(
    "[S09][S10][S11] a planted Inf, -Inf or NaN changes no bit and is named, wherever it is") {
  for (const DType dtype : {f16, bf16, f32, f64})
    for (const optim::StepOptions& options : {optim::StepOptions{.clip_norm = 0.1, .ema = 0.9},
                                              optim::StepOptions{.clip_value = 0.01}}) {
      Training training(dtype, options);
      std::int64_t applied = 0, skipped = 0;
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t m = 0; m < kMicroSteps; ++m)
          for (const double bad : {kInf, -kInf, kNaN}) {
            const int kind = std::isnan(bad) ? 0 : bad > 0 ? 1 : 2;
            if (on_slow_device() && (i + m) % 3 != kind) continue;
            CAPTURE(to_string(dtype), options.clip_norm, i, m, bad);
            REQUIRE(training.cycle().applied());
            ++applied;
            const double lr = training.opt.lr();
            const Bits before = bits_of_training(training.opt);  // averages included
            const optim::StepReport report = training.cycle(i, m, bad);
            ++skipped;
            CHECK(report.status() == optim::StepStatus::skipped_non_finite);
            CHECK(report.culprit() == i);
            CHECK(report.applied_steps() == applied);
            CHECK(report.skipped_steps() == skipped);
            CHECK(bits_of_training(training.opt) == before);
            CHECK(gradients_are_zero(training.opt));
            CHECK(training.opt.lr() == lr);
          }
    }
}

TEST_CASE("[S01][S09] training after a skipped step goes on as if that had not been") {
  for (const DType dtype : {f16, bf16, f32})
    for (const bool stochastic : {false, true}) {
      if (stochastic && dtype == f32) continue;
      CAPTURE(to_string(dtype), stochastic);
      const optim::StepOptions options{.clip_norm = 0.5,
                                       .loss_scale = optim::LossScale::fixed(1024),
                                       .ema = 0.9,
                                       .stochastic_rounding = stochastic};
      Training plain(dtype, options), interrupted(dtype, options);
      for (int k = 0; k < 20; ++k) {
        REQUIRE(plain.cycle());
        REQUIRE(interrupted.cycle());
        REQUIRE(interrupted.cycle(k % 4, k % 3, k % 2 == 0 ? kInf : kNaN).skipped());
        REQUIRE(plain.opt.lr() == interrupted.opt.lr());
      }
      CHECK(bits_of_training(plain.opt) == bits_of_training(interrupted.opt));
    }
}

}  // namespace
}  // namespace firn::testing
