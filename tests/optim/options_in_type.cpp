// Options are checked in the type that computes with them: kernels of f32 take subnormal numbers
// for 0, and numbers beyond f32 for infinity.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using namespace optim;
using Parameters = std::vector<Tensor>;

/// What the call throws; empty: nothing.
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Parameters parameters(DType dtype) { return {ones({2, 2}, dtype).set_requires_grad()}; }

/// What making an optimizer for parameters of the dtype says; empty: it was made.
template <class Optimizer, class Options>
std::string said(const Options& options, DType dtype = f32, const StepOptions& step = {}) {
  return text_of([&] { Optimizer(parameters(dtype), options, step); });
}

}  // namespace

TEST_CASE("[S45] an eps that is 0 in f32 is refused for f32 parameters, by every rule") {
  const auto refused = [](const std::string& text) {
    INFO(text);
    return text.find("eps is 1e-39, which f32 arithmetic takes for 0") != std::string::npos;
  };
  for (const DType dtype : {f32, f16, bf16}) {
    CHECK(refused(said<Adam>(AdamOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<AdamW>(AdamWOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<NAdam>(NAdamOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<RAdam>(RAdamOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<LAMB>(LAMBOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<Adagrad>(AdagradOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<Adadelta>(AdadeltaOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<RMSprop>(RMSpropOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<ScheduleFreeAdamW>(ScheduleFreeAdamWOptions{.eps = 1e-39}, dtype)));
    CHECK(refused(said<AdamW>(AdamWOptions{.eps = 1e-39, .state = StatePrecision::bits8}, dtype)));
  }
  CHECK(refused(said<Muon>(MuonOptions{.eps = 1e-39})));
  CHECK(said<AdamW>(AdamWOptions{.eps = 1e-39}, f64).empty());
  CHECK(said<AdamW>(AdamWOptions{.eps = 1.2e-38}).empty());
  CHECK_FALSE(said<RAdam>(RAdamOptions{.eps = 1e-38}).empty());
  // A group's own, and one of several.
  const auto groups = [](DType dtype) {
    return text_of([&] {
      std::vector<ParamGroup> all(2);
      all[0].parameters = parameters(f32);
      all[1].parameters = parameters(dtype);
      all[1].eps = 1e-39;
      AdamW(all, AdamWOptions{});
    });
  };
  CHECK(refused(groups(f32)));
  CHECK(groups(f64).empty());
  // With an eps that f32 has, a weight without gradient stays where it is.
  Tensor w = ones({2}).set_requires_grad();
  AdamW opt({w}, {.lr = 1e-3, .eps = 1.2e-38, .weight_decay = 0});
  opt.backward(sum(w * tensor({0.f, 1.f}, {2})), 1);
  CHECK(opt.step().applied());
  CHECK(values_of(w)[0] == 1);
  CHECK(values_of(w)[1] < 1);
}

TEST_CASE("[S45] other options that f32 cannot express are refused") {
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  CHECK(has(said<SGD>(SGDOptions{.weight_decay = 1e39}), "weight_decay is 1e+39"));
  CHECK(has(said<SGD>(SGDOptions{.momentum = 1e-40}), "momentum is 1e-40"));
  CHECK(said<SGD>(SGDOptions{.momentum = 1e-40}, f64).empty());
  CHECK(has(said<Adagrad>(AdagradOptions{.initial_accumulator = 1e39}), "initial_accumulator"));
  CHECK(has(said<Rprop>(RpropOptions{.step_min = 1e-40}), "step_min is 1e-40"));
  CHECK(has(said<Adafactor>(AdafactorOptions{.eps1 = 1e-20}), "the square of eps1 is 1e-40"));
  CHECK(said<Adafactor>(AdafactorOptions{.eps1 = 1e-20}, f64).empty());
  CHECK(said<Adafactor>(AdafactorOptions{}).empty());
  CHECK(has(said<Adafactor>(AdafactorOptions{.eps2 = 1e-39}), "eps2 is 1e-39"));
  CHECK(has(said<SGD>(SGDOptions{}, f32, {.clip_norm = 1e-40}), "clip_norm is 1e-40"));
  CHECK(has(said<SGD>(SGDOptions{}, f32, {.clip_value = 1e-40}), "clip_value is 1e-40"));
}

TEST_CASE("[S45] a learning rate that f32 takes for 0 is refused, wherever it is given") {
  const auto refused = [](const std::string& text) {
    INFO(text);
    return text.find("lr is 1e-39, which the weights' arithmetic takes for 0") != std::string::npos;
  };
  for (const DType dtype : {f32, f16, bf16}) {
    CHECK(refused(said<SGD>(SGDOptions{.lr = 1e-39}, dtype)));
    CHECK(refused(said<AdamW>(AdamWOptions{.lr = 1e-39}, dtype)));
  }
  CHECK(refused(said<Adafactor>(AdafactorOptions{.lr = 1e-39})));
  CHECK(refused(said<ScheduleFreeAdamW>(ScheduleFreeAdamWOptions{.lr = 1e-39})));
  CHECK(said<SGD>(SGDOptions{.lr = 1e-39}, f64).empty());
  CHECK(said<SGD>(SGDOptions{.lr = 1e-310}, f64).find("lr is ") != std::string::npos);
  CHECK(said<SGD>(SGDOptions{.lr = 1.2e-38}).empty());
  CHECK(said<SGD>(SGDOptions{.lr = 0}).empty());
  // The ends of schedules; between them a rate may fall to 0.
  CHECK(refused(said<SGD>(SGDOptions{.lr = linear_schedule(1e-3, 1e-39, 5)})));
  CHECK(refused(said<SGD>(SGDOptions{.lr = sequence({{1e-3, 5}, {1e-39, 0}})})));
  CHECK(said<SGD>(SGDOptions{.lr = cosine(1e-3, 5)}).empty());
  CHECK(said<SGD>(SGDOptions{.lr = exponential(1e-3, 1e-30)}).empty());
  const Schedule falls =
      lambda_schedule([](std::int64_t i) { return std::pow(0.5, i); }, 200, 1e-3);
  CHECK(said<SGD>(SGDOptions{.lr = falls}).empty());
  CHECK(falls.at(200) == 0);
  // A group's factor counts, and so does that of another rule.
  std::vector<ParamGroup> groups(1);
  groups[0].parameters = parameters(f32);
  groups[0].lr_scale = 1e-20;
  CHECK(text_of([&] { SGD(groups, SGDOptions{.lr = 1e-19}); }).find("it is less than 1.17") !=
        std::string::npos);
  groups[0].lr_scale = 0;
  CHECK(text_of([&] { SGD(groups, SGDOptions{.lr = 1e-19}); }).empty());
  // set_lr(), and a Plateau that goes on falling.
  const Tensor w = ones({1}).set_requires_grad();
  SGD opt({w}, {.lr = 1e-3});
  CHECK(refused(text_of([&] { opt.set_lr(1e-39); })));
  CHECK(opt.lr() == 1e-3);
  Plateau plateau({.lr = 1e-3, .patience = 0});
  for (int i = 0; i < 50; ++i)
    if (plateau.observe(1)) opt.set_lr(plateau.lr());
  CHECK(opt.lr() == 0);
}

TEST_CASE("[S45] a beta that is 1 in f32 is refused for f32 parameters") {
  const auto refused = [](const std::string& text, const char* name) {
    INFO(text);
    return text.find(std::string(name) + " is 0.99999999999, which f32 arithmetic takes for 1") !=
           std::string::npos;
  };
  const double b = 0.99999999999;
  CHECK(refused(said<AdamW>(AdamWOptions{.beta1 = b}), "beta1"));
  CHECK(refused(said<Adam>(AdamOptions{.beta2 = b}), "beta2"));
  CHECK(refused(said<AdamW>(AdamWOptions{.beta2 = b, .state = StatePrecision::bits8}), "beta2"));
  CHECK(refused(said<Lion>(LionOptions{.beta1 = b}), "beta1"));
  CHECK(refused(said<SGD>(SGDOptions{.momentum = b}), "momentum"));
  CHECK(refused(said<RMSprop>(RMSpropOptions{.alpha = b}), "alpha"));
  CHECK(refused(said<Adadelta>(AdadeltaOptions{.rho = b}), "rho"));
  CHECK(refused(said<Muon>(MuonOptions{.momentum = b}), "momentum"));
  CHECK(refused(said<Rprop>(RpropOptions{.eta_minus = b}), "eta_minus"));
  CHECK(said<AdamW>(AdamWOptions{.beta1 = b, .beta2 = b}, f64).empty());
  CHECK(said<AdamW>(AdamWOptions{.beta2 = 0.9999999}).empty());
}

TEST_CASE("[S45] an option that is 0 in f64 is refused for f64 parameters") {
  const auto refused = [](const std::string& text, const char* name) {
    INFO(text);
    return text.find(name) != std::string::npos &&
           text.find("which f64 arithmetic takes for 0") != std::string::npos;
  };
  CHECK(refused(said<AdamW>(AdamWOptions{.eps = 1e-310}, f64), "eps is "));
  CHECK(refused(said<SGD>(SGDOptions{.weight_decay = 1e-310}, f64), "weight_decay is "));
  CHECK(refused(said<SGD>(SGDOptions{}, f64, {.clip_norm = 1e-310}), "clip_norm is "));
  CHECK(refused(said<Adafactor>(AdafactorOptions{.beta2_decay = -1e-310}, f64), "beta2_decay is "));
}

TEST_CASE("[S45] a learning rate beyond f32 is refused, or its step is skipped") {
  CHECK(said<SGD>(SGDOptions{.lr = 1e40}).find("lr is 1e+40, more than 1.26") != std::string::npos);
  CHECK(said<SGD>(SGDOptions{.lr = 1e40}, f64).empty());
  CHECK(said<SGD>(SGDOptions{.lr = 1e300}, f64).find("lr is 1e+300, more than 8.4") !=
        std::string::npos);
  CHECK(said<SGD>(SGDOptions{.lr = linear_schedule(1, 1e200, 5)}).find("lr is 1e+200") !=
        std::string::npos);
  Tensor w = ones({1}).set_requires_grad();
  SGD opt({w}, {.lr = exponential(1, 1e200)}, {.max_skips = 2});
  CHECK(text_of([&] { opt.set_lr(1e40); }).find("lr is 1e+40") != std::string::npos);
  const auto step = [&] {
    opt.backward(sum(w), 1);
    return opt.step();
  };
  CHECK(step().applied());
  CHECK(w.item() == 0);
  const StepReport report = step();
  CHECK(report.skipped());
  CHECK(report.non_finite() == NonFinite::learning_rate);
  CHECK(to_string(report).find("the learning rate 1e+200 is too large") != std::string::npos);
  CHECK(w.item() == 0);
  CHECK(text_of([&] {
          step();
          synchronize(default_device());
          step();
        }).find("the learning rate is not finite") != std::string::npos);
  opt.set_lr(1);
  CHECK(step().applied());
  CHECK(w.item() == -1);
  // A group's factor counts.
  std::vector<ParamGroup> groups(1);
  groups[0].parameters = parameters(f32);
  groups[0].lr_scale = 1e20;
  const std::string scaled = text_of([&] { SGD(groups, SGDOptions{.lr = 1e15}); });
  INFO(scaled);
  CHECK(scaled.find("lr is 1000000000000000, more than 12676506002") != std::string::npos);
  groups[0].parameters = parameters(f64);
  groups[0].lr_scale = 1e300;
  CHECK(text_of([&] { SGD(groups, SGDOptions{.lr = 1e15}); }).find("more than 8.4") !=
        std::string::npos);
}

namespace {

/// Each of the options is refused by its name, or three steps with it give finite weights.
template <class Optimizer, class Options>
void try_all(std::initializer_list<std::pair<const char*, double Options::*>> options) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, member] : options)
    for (const double value : {1e300, -1e300, 1e39, 1e30, 1e18, -1.0, nan})
      for (const DType dtype : {f64, f32}) {
        Options o;
        o.*member = value;
        const Parameters all = parameters(dtype);
        const std::string text = text_of([&] {
          Optimizer opt(all, o);
          for (int i = 0; i < 3; ++i) {
            opt.backward(sum(all[0]), 1);
            opt.step();
          }
        });
        CAPTURE(name, value, to_string(dtype), text);
        if (text.empty()) {
          for (const double w : values_of(all[0])) CHECK(std::isfinite(w));
        } else {
          CHECK(text.find(name) != std::string::npos);
          CHECK(text.find("; hint: ") != std::string::npos);
        }
      }
}

}  // namespace

TEST_CASE("[S45] no option takes the weights to infinity, in f64 either") {
#define OF(Options, option) {#option, &Options::option}
#define ADAM(Options) \
  OF(Options, beta1), OF(Options, beta2), OF(Options, eps), OF(Options, weight_decay)
  try_all<SGD, SGDOptions>(
      {OF(SGDOptions, momentum), OF(SGDOptions, dampening), OF(SGDOptions, weight_decay)});
  try_all<RMSprop, RMSpropOptions>({OF(RMSpropOptions, alpha), OF(RMSpropOptions, eps),
                                    OF(RMSpropOptions, momentum),
                                    OF(RMSpropOptions, weight_decay)});
  try_all<Adagrad, AdagradOptions>({OF(AdagradOptions, lr_decay), OF(AdagradOptions, eps),
                                    OF(AdagradOptions, initial_accumulator),
                                    OF(AdagradOptions, weight_decay)});
  try_all<Adadelta, AdadeltaOptions>(
      {OF(AdadeltaOptions, rho), OF(AdadeltaOptions, eps), OF(AdadeltaOptions, weight_decay)});
  try_all<Rprop, RpropOptions>({OF(RpropOptions, eta_minus), OF(RpropOptions, eta_plus),
                                OF(RpropOptions, step_min), OF(RpropOptions, step_max)});
  try_all<Adam, AdamOptions>({ADAM(AdamOptions)});
  try_all<AdamW, AdamWOptions>({ADAM(AdamWOptions)});
  try_all<NAdam, NAdamOptions>({ADAM(NAdamOptions), OF(NAdamOptions, momentum_decay)});
  try_all<RAdam, RAdamOptions>({ADAM(RAdamOptions)});
  try_all<LAMB, LAMBOptions>({ADAM(LAMBOptions)});
  try_all<Lion, LionOptions>(
      {OF(LionOptions, beta1), OF(LionOptions, beta2), OF(LionOptions, weight_decay)});
  try_all<Muon, MuonOptions>({ADAM(MuonOptions),
                              OF(MuonOptions, momentum),
                              {"lr", &MuonOptions::adamw_lr_scale},
                              OF(MuonOptions, adamw_weight_decay)});
  try_all<Adafactor, AdafactorOptions>({OF(AdafactorOptions, beta2_decay),
                                        OF(AdafactorOptions, eps2), OF(AdafactorOptions, clip),
                                        OF(AdafactorOptions, weight_decay)});
  try_all<ScheduleFreeAdamW, ScheduleFreeAdamWOptions>(
      {ADAM(ScheduleFreeAdamWOptions), OF(ScheduleFreeAdamWOptions, r),
       OF(ScheduleFreeAdamWOptions, weight_lr_power)});
#undef ADAM
#undef OF
}

TEST_CASE("[S45][S46] large powers in the weights of schedule-free averages do not overflow") {
  const auto averaged = [](double r, double power) {
    Tensor w = ones({1}, f64).set_requires_grad();
    ScheduleFreeAdamW opt({w}, {.lr = 0.01, .warmup_steps = 4, .r = r, .weight_lr_power = power});
    double fast = 0, slow = 0;
    for (int i = 0; i < 20; ++i) {
      opt.backward(sum(w), 1);
      CHECK(opt.step().applied());
    }
    for (const auto& [name, t] : opt.state()) {
      if (name.ends_with("fast_weight")) fast = values_of(t)[0];
      if (name.ends_with("averaged_weight")) slow = values_of(t)[0];
    }
    return std::pair{fast, slow};
  };
  // With these the last step is all of the average, to 1e-19.
  for (const double r : {1000.0, 1e300}) {
    const auto [fast, slow] = averaged(r, 2);
    CHECK(std::abs(fast - slow) < 1e-15);
    CHECK(fast < 0.9);
  }
  // The 17 steps at the full rate have the same weight, and those before them have none.
  const auto [fast, slow] = averaged(0, 300);
  const double rise = 0.01 * (0.25 + 0.5 + 0.75 + 1);
  CHECK(std::abs(fast - (1 - rise - 0.01 * 16)) < 1e-6);
  CHECK(std::abs(slow - (1 - rise - 0.01 * 8)) < 1e-6);
  CHECK(averaged(0, 1e300).second < 0.95);
}

TEST_CASE("[S45] an eps of a layer that is 0 in f32 is refused for f32 tensors") {
  const std::vector<std::pair<const char*, std::function<void(DType)>>> calls = {
      {"layer_norm",
       [](DType t) {
         layer_norm(ones({2, 4}, t), {}, {}, 1e-39);
       }},
      {"rms_norm",
       [](DType t) {
         rms_norm(ones({2, 4}, t), {}, 1e-39);
       }},
      {"group_norm",
       [](DType t) {
         group_norm(ones({2, 4}, t), 2, {}, {}, 1e-39);
       }},
      {"instance_norm",
       [](DType t) {
         instance_norm(ones({2, 4, 3}, t), {}, {}, 1e-39);
       }},
      {"batch_norm",
       [](DType t) {
         batch_norm(ones({2, 4}, t), {}, {}, 1e-39);
       }},
      {"cosine_similarity",
       [](DType t) { cosine_similarity(ones({2}, t), ones({2}, t), 0, 1e-39); }},
      {"normalize", [](DType t) { normalize(ones({2}, t), 0, 1e-39); }},
      {"pairwise_distance",
       [](DType t) {
         pairwise_distance(ones({2, 2}, t), ones({2, 2}, t), {.eps = 1e-39});
       }},
      {"gaussian_nll",
       [](DType t) {
         gaussian_nll_loss(ones({2}, t), ones({2}, t), ones({2}, t), {.eps = 1e-39});
       }},
      {"poisson_nll",
       [](DType t) { poisson_nll_loss(ones({2}, t), ones({2}, t), {.eps = 1e-39}); }},
      {"spectral_norm", [](DType t) {
         nn::Linear layer(2, 2);
         layer.to(t);
         nn::SpectralNorm<nn::Linear>(layer, {.eps = 1e-39});
       }}};
  for (const auto& [name, made] : calls) {
    const auto& call = made;  // Clang 14 captures no structured binding
    CAPTURE(name);
    for (const DType dtype : {f32, bf16})
      CHECK(text_of([&] { call(dtype); }).find("eps = 1e-39 is 0 in the arithmetic of") !=
            std::string::npos);
    CHECK(text_of([&] { call(f64); }).empty());
  }
  CHECK(text_of([] { layer_norm(ones({2, 4}), {}, {}, 0); }).empty());  // 0 is what it says
}

TEST_CASE("[S45] RAdam: a gradient of 0 moves no weight, however small eps is") {
  for (const DType dtype : {f32, f64}) {
    const Tensor w = ones({2}, dtype).set_requires_grad();
    const double eps = dtype == f32 ? 1.2e-38 : 1e-300;
    RAdam opt({w}, {.lr = 1e9, .eps = eps});
    const Tensor slope = tensor<double>({0, 1}, {2}).to(dtype);
    for (int step = 0; step < 10; ++step) {  // the variance counts from step 6 on
      opt.backward((w * slope).sum(), 1);
      REQUIRE(opt.step().applied());
    }
    const std::vector<double> values = values_of(w);
    CHECK(values[0] == 1);
    CHECK(std::isfinite(values[1]));
  }
}

}  // namespace firn::testing
