// optim::Custom beside a built-in rule, what its function is given, and what becomes of a function
// that is wrong, that throws or that runs out of memory. What it has in common with other rules is
// in every_rule.cpp.
#include "optim_rules/custom.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include <unistd.h>

#include "firn/memory/plan.h"
#include "firn/memory/report.h"
#include "optim_rules/every_rule.h"
#include "runtime/memory/fail_allocation.h"

namespace firn::testing {
namespace {

using optim::Custom;
using optim::CustomInput;
using optim::CustomOptions;
using optim::CustomUpdate;
using optim::LossScale;

/// The largest difference of two tensors, in units in the last place of the larger of the value and
/// what it was `before` the step: a sum may cancel, and is rounded before it does.
double largest_units(const Tensor& a, const Tensor& b, const std::vector<double>& before) {
  const std::vector<double> x = values_of(a), y = values_of(b);
  const int digits = a.dtype() == f64 ? 52 : 23;
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double size = std::max({std::abs(x[i]), std::abs(before[i]), 1e-30});
    largest = std::max(largest, std::abs(x[i] - y[i]) / std::ldexp(1, std::ilogb(size) - digits));
  }
  return largest;
}

void copy_state(const optim::Optimizer& from, const optim::Optimizer& to) {
  const NoGrad guard;
  const auto a = from.state(), b = to.state();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].name == b[i].name);
    if (a[i].name != "kind") copy_(b[i].tensor, a[i].tensor);
  }
}

TEST_CASE("[S08][S09] Custom SGD with momentum is within 2 ulp a step of SGD") {
  const optim::Schedule lr = optim::cosine(0.02, 40);
  const RuleCase built_in =
      rule_case<optim::SGD>("SGD", optim::SGDOptions{.lr = lr, .momentum = 0.9});
  const RuleCase custom = rule_case<Custom>("Custom", custom_momentum(lr));
  for (const DType dtype : {f16, bf16, f32, f64}) {
    CAPTURE(to_string(dtype));
    const optim::StepOptions step{
        .accumulate = 3, .clip_norm = 0.5, .loss_scale = LossScale::fixed(64), .ema = 0.9};
    const RuleRun a(built_in, dtype, step), b(custom, dtype, step);
    for (int cycle = 0; cycle < 8; ++cycle) {
      copy_state(*a.opt, *b.opt);
      const bool spoilt = cycle % 4 == 2;
      const Bits before = b.bits();
      std::vector<std::vector<double>> values;
      for (const optim::NamedState& state : a.opt->state())
        values.push_back(values_of(state.tensor));
      for (const RuleRun* run : {&a, &b})
        for (int m = 0; m < 3; ++m) {
          run->opt->backward(run->loss(3 * cycle + m, spoilt && m == 1), 4);
          const auto report = run->opt->step();
          if (m == 2) REQUIRE(report.applied() == !spoilt);
        }
      if (spoilt) CHECK(b.bits() == before);
      const auto x = a.opt->state(), y = b.opt->state();
      const bool masters = dtype == f16 || dtype == bf16;
      for (std::size_t i = 0; i < x.size(); ++i)
        for (const char* kind : {masters ? ".master" : ".weight", ".momentum"})
          if (x[i].name.ends_with(kind)) {
            CAPTURE(x[i].name, cycle);
            CHECK(largest_units(x[i].tensor, y[i].tensor, values[i]) <= 2);
          }
    }
  }
}

/// Keeps what the function is given as its states, and leaves the weight alone.
CustomOptions recorder(const optim::Schedule& lr) {
  const auto scalar = [](const Shape&) { return Shape{}; };
  return {.lr = lr,
          .states = {{.name = "seen_gradient"},
                     {.name = "seen_weight"},
                     {.name = "seen_lr", .shape = scalar},
                     {.name = "seen_t", .shape = scalar}},
          .update = [](const CustomInput& in) -> CustomUpdate {
            return {in.weight, {in.gradient, in.weight, in.lr, in.t}};
          }};
}

TEST_CASE("[S02][S08][S17] the function of Custom sees the mean gradient, clipped, and its own t") {
  const Tensor a = parameter({1, 2, 3, 4}, {2, 2}, f16), b = parameter({5, 6}, {2}, f32);
  Custom opt({{.parameters = {a}}, {.parameters = {b}, .lr_scale = 0.5}},
             recorder(optim::polynomial(1, 4)),
             {.accumulate = 2, .clip_value = 3, .loss_scale = LossScale::fixed(128)});
  const auto seen = [&](const char* name) { return values_of(state_of(opt, name)); };
  opt.backward(objective(a, {2, 4, -60, 6}), 3);
  opt.step();
  opt.backward(objective(a, {2, 4, -60, 6}), 1);
  REQUIRE(opt.step().applied());
  CHECK(seen("parameters.0.seen_gradient") == std::vector<double>{1, 2, -3, 3});
  CHECK(seen("parameters.0.seen_weight") == std::vector<double>{1, 2, 3, 4});
  CHECK(seen("parameters.0.seen_lr") == std::vector<double>{1});
  CHECK(seen("parameters.0.seen_t") == std::vector<double>{1});
  CHECK(seen("parameters.1.seen_t") == std::vector<double>{0});
  for (int i = 0; i < 2; ++i) {
    opt.backward(objective(a, {4}) + objective(b, {8}), 4);
    opt.step();
  }
  CHECK(seen("parameters.0.seen_gradient") == std::vector<double>{1, 1, 1, 1});
  CHECK(seen("parameters.1.seen_gradient") == std::vector<double>{2, 2});
  CHECK(seen("parameters.0.seen_t") == std::vector<double>{2});
  CHECK(seen("parameters.1.seen_t") == std::vector<double>{1});
  CHECK(seen("parameters.0.seen_lr") == std::vector<double>{0.75});
  CHECK(seen("parameters.1.seen_lr") == std::vector<double>{0.375});
  CHECK(state_of(opt, "parameters.0.seen_gradient").dtype() == f32);
}

TEST_CASE("Custom keeps the order in memory of channels-last weights") {
  Tensor w = make({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 3, 2, 2}).to(f32).channels_last();
  w.set_requires_grad();
  Custom opt(std::vector<Tensor>{w}, custom_momentum(1));
  const Tensor scale = make({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 3, 2, 2}).to(f32);
  for (int i = 0; i < 2; ++i) {
    opt.backward(sum(w * scale));
    REQUIRE(opt.step().applied());
  }
  CHECK(w.is_channels_last());
  std::vector<double> weights, moments;
  for (int i = 0; i < 12; ++i) {
    moments.push_back(1.9 * i);
    weights.push_back(i - i - 1.9 * i);
  }
  const std::vector<double> momentum = values_of(state_of(opt, "parameters.0.momentum"));
  const std::vector<double> got = values_of(w);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(std::abs(momentum[i] - moments[i]) < 1e-5);
    CHECK(std::abs(got[i] - weights[i]) < 1e-5);
  }
}

TEST_CASE("Custom's function runs without recording and without autocast") {
  const Tensor w = parameter({1, 2}, {2, 1});
  bool recorded = false, in_f32 = true;
  Custom opt(std::vector<Tensor>{w}, {.update = [&](const CustomInput& in) -> CustomUpdate {
               recorded = recorded || grad_enabled() || in.weight.requires_grad();
               in_f32 = in_f32 && matmul(in.weight, in.weight.transpose(0, 1)).dtype() == f32;
               return {in.weight - in.lr * in.gradient};
             }});
  opt.backward(objective(w, {1}));
  const Autocast guard(bf16);
  CHECK(opt.step().applied());
  CHECK_FALSE(recorded);
  CHECK(in_f32);
}

TEST_CASE("Custom refuses wrong options and wrong functions, and names what is wrong") {
  const Tensor w = parameter({1, 2}, {2});
  const auto error = [&](const CustomOptions& o) {
    return error_of([&] { Custom(std::vector<NamedTensor>{{"fc.bias", w}}, o); });
  };
  using Update = std::function<CustomUpdate(const CustomInput&)>;
  const auto of = [&](const Update& update) {
    return error({.states = {{"momentum"}}, .update = update});
  };
  CHECK(mentions(error({}), {"[Custom]", "the function of the update is empty"}));
  const auto negative = [](const Shape&) { return Shape{2, -1}; };
  CHECK(mentions(
      error({.states = {{.name = "m", .shape = negative}}, .update = custom_momentum(1).update}),
      {"state \"m\" of parameter 0, \"fc.bias\"", "[2, -1]"}));
  for (const char* name : {"", "a.b", "weight", "gradient", "master", "ema"})
    CHECK(mentions(error({.states = {{name}}, .update = custom_momentum(1).update}),
                   {"[Custom] state 0 is called", name}));
  CHECK(mentions(error({.states = {{"m"}, {"m"}}, .update = custom_momentum(1).update}),
                 {"states 0 and 1 are both called \"m\""}));
  CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate {
                   return {{}, in.states};
                 }),
                 {"weight of parameter 0, \"fc.bias\"", "undefined", "[2] f32"}));
  CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate {
                   return {reshape(in.weight, {1, 2}), in.states};
                 }),
                 {"weight of parameter 0", "[1, 2] f32", "not [2] f32"}));
  CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate {
                   return {in.weight, {in.states[0].to(f64)}};
                 }),
                 {"state \"momentum\" of parameter 0", "[2] f64", "not [2] f32"}));
  CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate { return {in.weight}; }),
                 {"0 states of parameter 0", "has 1"}));
  if (!default_device().is_cpu())
    CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate {
                     return {zeros({2}, f32, Device::cpu()), in.states};
                   }),
                   {"[2] f32 cpu", "not [2] f32 cuda:0"}));
  CHECK(mentions(of([](const CustomInput& in) -> CustomUpdate {
                   return {in.weight + zeros({3}), in.states};
                 }),
                 {"[add]"}));
  CHECK(mentions(error_of([&] {
                   Custom({optim::ParamGroup{.parameters = {w}, .momentum = 0.1}},
                          custom_momentum(1));
                 }),
                 {"group 0 sets momentum", "Custom has none"}));
  // All was refused before the parameter became an optimizer's.
  CHECK_NOTHROW(optim::SGD({w}));
}

/// A function that does something else when it is told to.
struct Moody {
  enum class Mood { plain, wrong_shape, throws, asks_for_more } mood = Mood::plain;
  int calls = 0;
  std::vector<Tensor> kept = {};
};
CustomOptions moody(const std::shared_ptr<Moody>& m, int bad_call) {
  CustomOptions o = custom_momentum(0.1);
  o.update = [m, bad_call, plain = o.update](const CustomInput& in) -> CustomUpdate {
    if (m->mood == Moody::Mood::plain || m->calls++ != bad_call) return plain(in);
    if (m->mood == Moody::Mood::throws) throw std::runtime_error("moody");
    if (m->mood == Moody::Mood::wrong_shape) return {zeros({7}, in.weight.dtype()), in.states};
    m->kept.push_back(zeros({1 << 16}, f32, in.weight.device()));
    return plain(in);
  };
  return o;
}

TEST_CASE("[S09][S21] a function of Custom that fails in a step leaves all as before") {
  using Mood = Moody::Mood;
  for (const DType dtype : {f16, f32})
    for (const Mood mood : {Mood::wrong_shape, Mood::throws, Mood::asks_for_more})
      for (const int bad_call : {0, 2, 3}) {
        CAPTURE(to_string(dtype), static_cast<int>(mood), bad_call);
        const auto m = std::make_shared<Moody>();
        const optim::StepOptions step{.clip_norm = 0.5, .ema = 0.9};
        const RuleRun run(rule_case<Custom>("Custom", moody(m, bad_call)), dtype, step);
        const RuleRun plain(rule_case<Custom>("Custom", custom_momentum(0.1)), dtype, step);
        REQUIRE(run.run(0, 2) == 2);
        REQUIRE(plain.run(0, 2) == 2);
        run.opt->backward(run.loss(3), 4);
        plain.opt->backward(plain.loss(3), 4);
        m->mood = mood;
        m->calls = 0;
        const auto everything = [&] {
          Bits out;
          for (const optim::NamedState& s : run.opt->state())
            if (s.name != "step_state") out = out + bits_of(s.tensor);
          return out;
        };
        const Bits before = everything();
        if (mood == Mood::throws) {
          CHECK_THROWS_AS(run.opt->step(), std::runtime_error);
        } else if (mood == Mood::wrong_shape) {
          CHECK_THROWS_AS(run.opt->step(), Error);
        } else {
          const FailAllocation fail(0, true);
          CHECK_THROWS_AS(run.opt->step(), OutOfMemory);
        }
        CHECK(everything() == before);
        m->mood = Mood::plain;
        REQUIRE(run.opt->step().applied());
        REQUIRE(plain.opt->step().applied());
        CHECK(run.run(4, 6) == 2);
        CHECK(plain.run(4, 6) == 2);
        CHECK(run.bits() == plain.bits());
      }
}

TEST_CASE("[S21] a function of Custom that keeps tensors takes the rest from the allocator") {
  const auto m = std::make_shared<Moody>();
  const RuleRun run(rule_case<Custom>("Custom", moody(m, 1)), f32, {});
  const RuleRun plain(rule_case<Custom>("Custom", custom_momentum(0.1)), f32, {});
  m->mood = Moody::Mood::asks_for_more;
  for (int i = 0; i < 6; ++i) {
    m->calls = 0;
    REQUIRE(run.run(i, i + 1) == 1);
    REQUIRE(plain.run(i, i + 1) == 1);
  }
  CHECK(m->kept.size() >= 2);
  for (const Tensor& t : m->kept)
    for (const double v : values_of(t)) REQUIRE(v == 0);  // nobody else has written there
  CHECK(run.bits() == plain.bits());
}

TEST_CASE("[S21] the memory of Custom is the optimizer's, and a plan of its step is exact") {
  for (const DType dtype : {f16, f32}) {
    const RuleRun run(rule_case<Custom>("Custom", custom_rows(0.1)), dtype, {});
    const auto step = [&] {
      run.opt->backward(run.loss(0), 4);
      run.opt->step();
    };
    step();
    const Bits before = run.bits();
    const MemoryPlan plan = plan_memory(step);
    CHECK(run.bits() == before);
    reset_peak_memory();
    step();
    CHECK(plan.peak == memory_stats().total.peak);
    // Weight and moment, two of each for the step; copies of them, and the function's own.
    const double bytes = static_cast<double>(memory_stats().of(Owner::optimizer).current);
    CHECK(bytes > 4.0 * 3 * (40 * 24));
  }
}

TEST_CASE("[S23][S27] a run with Custom is saved and goes on to the bit") {
  const auto path = std::filesystem::temp_directory_path() /
                    ("firn_custom_" + std::to_string(::getpid()) + ".safetensors");
  const RuleCase rule = rule_case<Custom>("Custom", custom_rows(0.02));
  const optim::StepOptions step{.accumulate = 2, .loss_scale = LossScale::dynamic({.init = 64})};
  const RuleRun first(rule, f16, step), second(rule, f16, step, 99);
  first.run(0, 5);
  io::save_run(path.string(), {*first.opt});
  io::load_run(path.string(), {*second.opt});
  CHECK(first.run(5, 10) == second.run(5, 10));
  CHECK(first.bits() == second.bits());
  // Another optimizer's file is not Custom's.
  const RuleRun other(rule_case<optim::SGD>("SGD", optim::SGDOptions{.momentum = 0.9}), f16, step);
  CHECK_THROWS_AS(io::load_run(path.string(), {*other.opt}), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace firn::testing
