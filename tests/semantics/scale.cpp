// The loss scale: exact, constant within a cycle, checked options, and what it cannot mend.
#include <limits>

#include "semantics/mlp.h"
#include "semantics/spoil.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

optim::StepOptions scaled(const optim::LossScale& scale) { return {.loss_scale = scale}; }

// Weights of a model after ten steps of two micro-batches each; `between` runs between the
// micro-steps.
template <class Between>
Bits trained(DType dtype, const optim::LossScale& scale, Between&& between) {
  const Mlp net(6, 5, 3, dtype);
  optim::AdamW opt(net.parameters(), {.lr = 0.01}, scaled(scale));
  Rng rng(8);
  const Tensor x = make(rng.uniforms(40 * 6, -1, 1), {40, 6}, dtype);
  std::vector<double> labels;
  for (int i = 0; i < 40; ++i) labels.push_back(double(rng.below(3)));
  const Tensor y = make(labels, {40}, i64);
  for (int step = 0; step < 10; ++step) {
    opt.backward(cross_entropy(net(x.slice(0, 0, 13)), y.slice(0, 0, 13)));
    between(opt, step);
    opt.backward(cross_entropy(net(x.slice(0, 13, 40)), y.slice(0, 13, 40)));
    REQUIRE(opt.step());
  }
  return bits_of_training(opt);
}
const auto nothing = [](optim::Optimizer&, int) {};

TEST_CASE("[S06] a power of two as scale changes no bit of a training, barring f16's limits") {
  for (const DType dtype : {f32, f64, bf16}) {
    CAPTURE(to_string(dtype));
    const Bits unscaled = trained(dtype, optim::LossScale::none(), nothing);
    for (const double scale : {0x1p-20, 0.5, 1.0, 2.0, 1024.0, 65536.0, 0x1p24}) {
      CAPTURE(scale);
      CHECK(trained(dtype, optim::LossScale::fixed(scale), nothing) == unscaled);
    }
    CHECK(trained(dtype, optim::LossScale::dynamic({.init = 1024, .growth_interval = 2}),
                  nothing) == unscaled);
  }
}

TEST_CASE("[S06] a gradient that f16 would flush to zero is there under a scale") {
  for (const double scale : {1.0, 16.0, 4096.0}) {
    Tensor w = parameter({0}, {1}, f16);
    optim::SGD opt({w}, {.lr = 1}, scaled(optim::LossScale::fixed(scale)));
    opt.backward(objective(w, {1}) * 0x1p-26);  // the gradient of an f16 is rounded to f16
    REQUIRE(opt.step());
    const double master = values_of(state_of(opt, "parameters.0.master"))[0];
    CHECK(master == (scale == 1 ? 0 : -0x1p-26));
  }
}

TEST_CASE(
    "[S07] a sum that is finite but overflows when a scale below 1 is taken back is not applied") {
  for (const double gradient : {0x1p100, -0x1p126}) {
    Tensor w = parameter({1, 1}, {2});
    optim::SGD opt({w}, {.lr = 0}, scaled(optim::LossScale::fixed(0x1p-24)));
    opt.backward(objective(w, {0.5, gradient}), 1);
    CHECK(opt.step().applied());
    opt.backward(objective(w, {0.5, gradient}), 0x1p-10);
    const Bits before = bits_of_training(opt);
    const optim::StepReport report = opt.step();
    CHECK(report.applied() == (gradient == 0x1p100));
    if (!report.applied()) {
      CHECK(report.culprit() == 0);
      CHECK(bits_of_training(opt) == before);
    }
  }
}

TEST_CASE("[S06][S13] a scale that is no power of two is refused") {
  for (const double bad : {0.0, -2.0, 3.0, 1000.0, kInf, kNaN, 0x1p-25, 0x1p25}) {
    CAPTURE(bad);
    CHECK(error_of([&] { optim::LossScale::fixed(bad); }).find("power of two") !=
          std::string::npos);
  }
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {}, scaled(optim::LossScale::dynamic()));
  for (const double bad : {0.0, -2.0, 3.0, kInf, kNaN}) {
    CAPTURE(bad);
    CHECK(error_of([&] { opt.set_loss_scale(bad); }).find("power of two") != std::string::npos);
    CHECK(opt.loss_scale() == 65536);
  }
}

TEST_CASE("[S05] a scale that is set in mid-cycle re-expresses what has been added up") {
  const Bits undisturbed = trained(f32, optim::LossScale::none(), nothing);
  const Bits disturbed =
      trained(f32, optim::LossScale::fixed(1024), [](optim::Optimizer& opt, int step) {
        const Bits before = bits_of_training(opt);
        opt.set_loss_scale(std::ldexp(1.0, step - 3));
        CHECK(opt.loss_scale() == std::ldexp(1.0, step - 3));
        CHECK(bits_of_training(opt) == before);
      });
  CHECK(disturbed == undisturbed);
}

TEST_CASE("[S13] the options of the loss scale have the documented defaults, and are checked") {
  const optim::DynamicLossScale o;
  CHECK(o.init == 65536);
  CHECK(o.growth_factor == 2);
  CHECK(o.backoff_factor == 0.5);
  CHECK(o.growth_interval == 2000);
  CHECK(o.min == 1);
  CHECK(o.max == 0x1p24);
  CHECK(o.hysteresis == 1);
  using Options = optim::DynamicLossScale;
  const auto refused = [](const char* option, auto&& change) {
    Options bad;
    change(bad);
    CAPTURE(option);
    CHECK(error_of([&] { optim::LossScale::dynamic(bad); }).find(option) != std::string::npos);
  };
  refused("init", [](Options& b) { b.init = 1000; });
  refused("init", [](Options& b) { b.init = 0.5; });
  refused("init", [](Options& b) { b.init = 0x1p25; });
  refused("growth_factor", [](Options& b) { b.growth_factor = 1; });
  refused("growth_factor", [](Options& b) { b.growth_factor = 1.5; });
  refused("backoff_factor", [](Options& b) { b.backoff_factor = 1; });
  refused("backoff_factor", [](Options& b) { b.backoff_factor = 0; });
  refused("growth_interval", [](Options& b) { b.growth_interval = 0; });
  refused("min", [](Options& b) { b.min = 0; });
  refused("min", [](Options& b) { b.min = kNaN; });
  refused("max", [](Options& b) { b.max = 0.5; });
  refused("max", [](Options& b) { b.max = kInf; });
  refused("hysteresis", [](Options& b) { b.hysteresis = 0; });
}

// Options for scales that move within a few steps.
optim::StepOptions quick(double init, double max, std::int64_t interval = 1) {
  return scaled(optim::LossScale::dynamic({.init = init, .growth_interval = interval, .max = max}));
}

TEST_CASE("[S13] growth ends at the maximum") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1e-3}, quick(1, 8));
  std::vector<double> scales;
  for (int i = 0; i < 5; ++i) {
    opt.backward(objective(w, {1}));
    REQUIRE(opt.step());
    scales.push_back(opt.loss_scale());
  }
  CHECK(scales == std::vector<double>{2, 4, 8, 8, 8});
}

TEST_CASE("[S01] the scale grows by applied steps, however many micro-steps they had") {
  for (const std::int64_t n : {1, 2, 8}) {
    Tensor w = parameter({1}, {1});
    optim::StepOptions options = quick(1, 0x1p20, 3);
    options.accumulate = n;
    optim::SGD opt({w}, {.lr = 1e-3}, options);
    for (int step = 1; step <= 9; ++step) {
      for (std::int64_t m = 0; m < n; ++m) {
        opt.backward(objective(w, {1}));
        CHECK(opt.step().applied() == (m == n - 1));
      }
      CHECK(opt.loss_scale() == std::ldexp(1.0, step / 3));
    }
  }
}

TEST_CASE("[S12] skips in a row end with an error that names the culprit") {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1});
  optim::StepOptions options = quick(0x1p24, 0x1p24);
  options.max_skips = 4;
  optim::SGD opt({a, b}, {.lr = 1e-3}, options);
  const auto cycle = [&](bool bad) {
    opt.backward(objective(a, {1}));
    opt.backward(bad ? spoilt(objective(b, {1}), kNaN) : objective(b, {1}));
    return opt.step();
  };
  for (int i = 0; i < 3; ++i) REQUIRE(cycle(true).skipped());
  REQUIRE(cycle(false));  // begins the count anew
  for (int i = 0; i < 3; ++i) REQUIRE(cycle(true).skipped());
  const std::string message = error_of([&] {
    cycle(true);  // on a device nobody waits: the error comes when the host can see the step
    synchronize(default_device());
    cycle(false);
  });
  CHECK(message.find("parameter 1") != std::string::npos);
  CHECK(message.find("4") != std::string::npos);
  CHECK(a.item() == b.item());
  CHECK(cycle(false));  // the optimizer can be used further
}

TEST_CASE("[S12] a loss that is not finite is no reason to lower the scale") {
  Tensor w = parameter({1}, {1});
  optim::StepOptions options = quick(1024, 0x1p24);
  options.max_skips = 3;
  optim::SGD opt({w}, {.lr = 1e-3}, options);
  const auto cycle = [&] {
    opt.backward(objective(w, {kNaN}));
    return opt.step();
  };
  for (int i = 0; i < 2; ++i) REQUIRE(cycle().skipped());
  CHECK(opt.loss_scale() == 1024);
  CHECK(error_of([&] {
          cycle();
          synchronize(default_device());
          cycle();
        }).find("loss") != std::string::npos);
  CHECK(w.item() == 1);
}

TEST_CASE("[S12][S28] a run that is resumed is not told again of the skips before it") {
  const auto make = [](Tensor& w) {
    return std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions{.lr = 0.125},
                                        optim::StepOptions{.max_skips = 2});
  };
  const auto cycle = [](optim::Optimizer& opt, const Tensor& w, bool bad) -> std::string {
    try {
      opt.backward(bad ? objective(w, {kNaN}) : objective(w, {1}));
      const bool applied = opt.step().applied();
      synchronize(default_device());
      return applied ? "applied" : "skipped";
    } catch (const Error&) {
      return "throws";
    }
  };
  const auto state_of = [](const optim::Optimizer& opt) {
    std::vector<Tensor> copies;
    for (const auto& s : opt.state()) copies.push_back(s.tensor.clone());
    return copies;
  };
  const auto load = [](optim::Optimizer& opt, const std::vector<Tensor>& copies) {
    const NoGrad guard;
    const auto state = opt.state();
    for (std::size_t i = 0; i < state.size(); ++i) copy_(state[i].tensor, copies[i]);
  };
  Tensor w = parameter({1}, {1});
  const auto opt = make(w);
  CHECK(cycle(*opt, w, true) == "skipped");
  const auto one_skip = state_of(*opt);
  std::string told = cycle(*opt, w, true);
  if (told == "skipped") told = cycle(*opt, w, true);  // on a device the host sees it a step later
  CHECK(told == "throws");
  opt->zero_grad();
  const auto told_state = state_of(*opt);

  Tensor v = parameter({1}, {1});
  const auto resumed = make(v);
  load(*resumed, told_state);
  CHECK(cycle(*resumed, v, false) == "applied");
  // Gone back to before the second skip: that one is new.
  load(*opt, one_skip);
  std::string again = cycle(*opt, w, true);
  if (again == "skipped") again = cycle(*opt, w, true);
  CHECK(again == "throws");
}

}  // namespace
}  // namespace firn::testing
