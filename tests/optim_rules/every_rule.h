// Every rule that an optimizer can have, by name, for tests that hold of all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/problem.h"
#include "optim_rules/custom.h"
#include "semantics/mlp.h"

namespace firn::testing {

struct RuleCase {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>& parameters,
                                                  const optim::StepOptions& step)>
      make;
  bool f64 = true;         ///< takes f64 parameters
  bool stochastic = true;  ///< rounds 16-bit weights stochastically if asked
};

template <class Algorithm, class Options>
RuleCase rule_case(const std::string& name, const Options& options, bool f64 = true,
                   bool stochastic = true) {
  return {name,
          [options](const std::vector<Tensor>& parameters, const optim::StepOptions& step) {
            return std::make_unique<Algorithm>(parameters, options, step);
          },
          f64, stochastic};
}

/// With learning rates that change at every step.
inline std::vector<RuleCase> every_rule() {
  using optim::StatePrecision;
  const optim::Schedule lr = optim::cosine(0.02, 40);
  return {
      rule_case<optim::SGD>("SGD", optim::SGDOptions{.lr = lr, .weight_decay = 0.1}),
      rule_case<optim::SGD>("SGD, momentum", optim::SGDOptions{.lr = lr, .momentum = 0.9}),
      rule_case<optim::Adam>("Adam", optim::AdamOptions{.lr = lr, .weight_decay = 0.1}),
      rule_case<optim::AdamW>("AdamW", optim::AdamWOptions{.lr = lr}),
      rule_case<optim::AdamW>("AdamW, amsgrad", optim::AdamWOptions{.lr = lr, .amsgrad = true}),
      rule_case<optim::NAdam>("NAdam", optim::NAdamOptions{.lr = lr, .weight_decay = 0.1}),
      rule_case<optim::RAdam>("RAdam", optim::RAdamOptions{.lr = optim::scaled(lr, 2)}),
      rule_case<optim::Adadelta>("Adadelta", optim::AdadeltaOptions{.lr = optim::scaled(lr, 50)}),
      rule_case<optim::Rprop>("Rprop", optim::RpropOptions{.lr = lr, .step_max = 0.02}),
      rule_case<optim::RMSprop>("RMSprop",
                                optim::RMSpropOptions{.lr = lr, .momentum = 0.9, .centered = true}),
      rule_case<optim::Adagrad>("Adagrad", optim::AdagradOptions{.lr = lr}),
      rule_case<optim::LAMB>("LAMB", optim::LAMBOptions{.lr = lr}),
      rule_case<optim::Lion>("Lion", optim::LionOptions{.lr = lr, .weight_decay = 0.1}),
      rule_case<optim::Adam>(
          "Adam in 8 bits",
          optim::AdamOptions{
              .lr = lr, .weight_decay = 0.1, .state = StatePrecision::bits8, .min_8bit_size = 0},
          false),
      // The biases keep full states.
      rule_case<optim::AdamW>(
          "AdamW in 8 bits",
          optim::AdamWOptions{.lr = lr, .state = StatePrecision::bits8, .min_8bit_size = 30},
          false),
      rule_case<optim::Lion>(
          "Lion in 8 bits",
          optim::LionOptions{
              .lr = lr, .weight_decay = 0.1, .state = StatePrecision::bits8, .min_8bit_size = 0},
          false),
      rule_case<optim::Muon>("Muon", optim::MuonOptions{.lr = lr}),
      rule_case<optim::Muon>("Muon as large as AdamW",
                             optim::MuonOptions{.lr = lr,
                                                .nesterov = false,
                                                .scale = optim::MuonScale::match_rms_adamw,
                                                .adamw_lr_scale = 0.5}),
      rule_case<optim::Adafactor>("Adafactor", optim::AdafactorOptions{.lr = optim::scaled(lr, 8)}),
      rule_case<optim::Custom>("Custom momentum", custom_momentum(lr)),
      rule_case<optim::Custom>("Custom by rows", custom_rows(lr)),
      rule_case<optim::ScheduleFreeAdamW>(
          "schedule-free AdamW",
          optim::ScheduleFreeAdamWOptions{.lr = lr, .weight_decay = 0.1, .warmup_steps = 3, .r = 1},
          true, false),
  };
}

/// A net and its optimizer in cycles of up to three micro-steps of changing sizes. The second layer
/// alone is reached by two of three. What a run draws depends on its micro-steps' numbers alone.
struct RuleRun {
  Mlp net;
  std::unique_ptr<optim::Optimizer> opt;

  RuleRun(const RuleCase& rule, DType dtype, const optim::StepOptions& step, std::uint64_t seed = 3)
      : net(40, 24, 3, dtype, seed), opt(rule.make(net.parameters(), step)) {}

  /// The loss of micro-step i; `spoilt` makes its gradient infinite.
  Tensor loss(int i, bool spoilt = false) const {
    Rng rng(static_cast<std::uint64_t>(i) + 1);
    const std::int64_t n = 1 + rng.below(8);
    Tensor x = make(rng.uniforms(n * 40, -1, 1), {n, 40}, net.w1.dtype());
    const Tensor y = make(std::vector<double>(static_cast<std::size_t>(n), 1), {n}, i64);
    if (spoilt) x = x * std::numeric_limits<double>::infinity();
    const Tensor hidden = tanh(linear(x, net.w1, net.b1));
    return cross_entropy(linear(i % 3 == 0 ? hidden : hidden.detach(), net.w2, net.b2), y).sum;
  }
  /// Micro-steps [from, to). Returns how many steps were applied.
  int run(int from, int to) const {
    int applied = 0;
    for (int i = from; i < to; ++i) {
      opt->backward(loss(i), 4);
      applied += opt->step().applied() ? 1 : 0;
    }
    return applied;
  }
  Bits bits() const { return bits_of_training(*opt); }
};

}  // namespace firn::testing
