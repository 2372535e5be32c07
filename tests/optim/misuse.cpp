// What goes wrong in a training loop, and what the optimizer says to it: an optimizer that was
// moved from, guards that outlive it, steps with nothing to do.
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "firn/memory/plan.h"
#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::flush_all;
using optim::step_all;
using optim::StepStatus;

TEST_CASE("every call of an optimizer that was moved from says so") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {.lr = 0.5}, {.ema = 0.5});
  optim::SGD other = std::move(opt);
  const auto says_so = [](const std::function<void()>& call) {
    CHECK(mentions(error_of(call), {"[Optimizer]", "was moved from", "that it was moved to"}));
  };
  // NOLINTBEGIN(bugprone-use-after-move)
  says_so([&] { opt.backward(objective(w, {1})); });
  says_so([&] { opt.backward(mse_loss(w, zeros({2}))); });
  says_so([&] { opt.step(); });
  says_so([&] { opt.run_cycle(1, [&](std::int64_t) { return mse_loss(w, zeros({2})); }); });
  says_so([&] {
    opt.run_batch(2, 1, [&](std::int64_t, std::int64_t) { return mse_loss(w, zeros({2})); });
  });
  says_so([&] {
    opt.step_two_pass(
        1, [&](std::int64_t) { return w * 1.0; },
        [](const Tensor& all) { return mse_loss(all, zeros({2})); });
  });
  says_so([&] { opt.restore_on_retry({w}); });
  says_so([&] { opt.flush(); });
  says_so([&] { opt.set_epoch(1); });
  says_so([&] { (void)opt.cycle_length(); });
  says_so([&] { (void)opt.cycle_position(); });
  says_so([&] { (void)opt.last_report(); });
  says_so([&] { (void)opt.loss_totals(); });
  says_so([&] { (void)optim::describe(opt); });
  says_so([&] { opt.zero_grad(); });
  says_so([&] { (void)opt.lr(); });
  says_so([&] { opt.set_lr(1); });
  says_so([&] { opt.set_lr(optim::cosine(1, 2)); });
  says_so([&] { (void)opt.loss_scale(); });
  says_so([&] { opt.set_loss_scale(2); });
  says_so([&] { (void)opt.parameters(); });
  says_so([&] { (void)optim::ema(opt); });
  says_so([&] { const optim::AveragedWeights guard(opt); });
  says_so([&] { (void)optim::gradient_health(opt); });
  says_so([&] { opt.refresh_masters(); });
  says_so([&] { (void)opt.state(); });
  says_so([&] { step_all({&opt}); });
  says_so([&] { flush_all({&opt}); });
  says_so([&] { const graph::Step step(opt, [] {}); });
  // NOLINTEND(bugprone-use-after-move)
  other.backward(objective(w, {1}));
  CHECK(other.step());
  opt = std::move(other);  // it can be assigned to
  opt.backward(objective(w, {1}));
  CHECK(opt.step());
  CHECK(values_of(w) == std::vector<double>{0, 1});
}

TEST_CASE("every call of a graph::Step that was moved from says so") {
  int runs = 0;
  graph::Step step(default_device(), [&] { ++runs; });
  graph::Step other = std::move(step);
  other();
  CHECK(runs == 1);
  // NOLINTBEGIN(bugprone-use-after-move)
  for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
           [&] { step(); }, [&] { step.reset(); }, [&] { (void)step.graph(); },
           [&] { (void)step.variant(); }})
    CHECK(mentions(error_of(call), {"[graph]", "graph::Step was moved from"}));
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("a graph::Step follows an optimizer that is moved, and says if it is gone") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  std::optional<optim::SGD> other;
  graph::Step step(opt, [&] {
    other->backward(objective(w, {1}));
    other->step();
  });
  other = std::move(opt);
  step();
  CHECK(values_of(w) == std::vector<double>{0});
  other.reset();
  CHECK(mentions(error_of([&] { step(); }), {"[graph]", "is gone"}));
}

TEST_CASE("an empty function is refused by the call that was given it") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  const auto encode = [&](std::int64_t) { return w * 1.0; };
  CHECK(mentions(error_of([&] { opt.run_cycle(2, {}); }), {"[SGD]", "run_cycle() is empty"}));
  CHECK(mentions(error_of([&] { opt.run_batch(2, 1, {}); }), {"[SGD]", "run_batch() is empty"}));
  CHECK(mentions(error_of([&] { opt.step_two_pass(2, {}, {}); }), {"[SGD]", "the encoder"}));
  CHECK(mentions(error_of([&] { opt.step_two_pass(2, encode, {}); }), {"[SGD]", "the loss"}));
  CHECK(mentions(error_of([&] { graph::Step(default_device(), {}); }), {"graph::Step is empty"}));
  CHECK(mentions(error_of([&] { graph::Graph::capture(default_device(), {}); }),
                 {"Graph::capture is empty"}));
}

TEST_CASE("std::bad_alloc of a loss function is OutOfMemory that names the function") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  const auto fails = []() -> Loss { throw std::bad_alloc(); };
  const auto batch = [&](std::int64_t, std::int64_t) { return fails(); };
  const auto encode = [&](std::int64_t) { return w * 1.0; };
  const auto says = [](const std::function<void()>& call, const char* function) {
    CHECK_THROWS_AS(call(), OutOfMemory);
    const std::string text = error_of(call);
    CHECK(mentions(text, {"the heap has no memory left for the function given to ", function}));
    CHECK(text.find("SGD") == std::string::npos);
  };
  says([&] { opt.run_cycle(2, [&](std::int64_t) { return fails(); }); }, "run_cycle()");
  says([&] { opt.run_batch(2, 1, batch); }, "run_batch()");
  says([&] { opt.run_batch(2, {.size = 1}, batch); }, "run_batch()");
  says([&] { opt.step_two_pass(1, encode, [&](const Tensor&) { return fails(); }); },
       "step_two_pass()");
  opt.backward(objective(w, {1}));
  CHECK(opt.step());
}

TEST_CASE("a number or tensor that makes no cycle is refused with a way out") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  const auto batch = [&](std::int64_t, std::int64_t) { return mse_loss(w, zeros({1})); };
  const auto micro = [&](std::int64_t) { return mse_loss(w, zeros({1})); };
  const auto encode = [&](std::int64_t) { return w * 1.0; };
  const auto loss_of_all = [](const Tensor& all) { return mse_loss(all, zeros({1})); };
  const auto says = [](const std::function<void()>& call, const char* text) {
    CHECK(mentions(error_of(call), {"[SGD] ", text, "; hint: "}));
  };
  says([&] { opt.run_cycle(0, micro); }, "0 micro-steps make no cycle");
  says([&] { opt.run_batch(0, 1, batch); }, "a batch of 0 samples");
  says([&] { opt.run_batch(-2, {.size = 1}, batch); }, "a batch of -2 samples");
  says([&] { opt.run_batch(2, 0, batch); }, "2 samples cannot be cut into micro-batches of 0");
  says([&] { opt.step_two_pass(0, encode, loss_of_all); }, "0 parts make no batch");
  says([&] { opt.set_epoch(-1); }, "the epoch is -1");
  says([&] { opt.backward(Tensor()); }, "the loss is undefined");
  says([&] { opt.restore_on_retry({w, Tensor()}); }, "buffer 1 is undefined");
}

TEST_CASE("[S45] a loss's weight that f32 takes for 0 or infinity is refused, and f64 has it") {
  for (const double weight : {1e300, 1e-45, 1e-320}) {
    const Tensor w = ones({2}).set_requires_grad(), wide = ones({2}, f64).set_requires_grad();
    optim::SGD opt({w}, {.lr = 0.1}), in_f64({wide}, {.lr = 0.1});
    CHECK(mentions(error_of([&] { opt.backward(sum(w), weight); }), {"weight of a loss", "f32"}));
    if (weight != 1e-320) in_f64.backward(sum(wide), weight);
  }
}

TEST_CASE("[S24] micro-batches larger than the batch, of any size, are one micro-step") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1});
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    seen.emplace_back(first, last);
    return Loss{sum(w) * static_cast<double>(last - first),
                full({}, static_cast<double>(last - first), f32)};
  };
  CHECK(opt.run_batch(5, std::numeric_limits<std::int64_t>::max(), loss));
  CHECK(opt.run_batch(5, 3, loss));
  using Range = std::pair<std::int64_t, std::int64_t>;
  CHECK(seen == std::vector<Range>{{0, 5}, {0, 3}, {3, 5}});
  CHECK(mentions(error_of([&] { opt.run_batch(0, 3, loss); }), {"[SGD]", "0 samples"}));
  optim::SGD four({parameter({1}, {1})}, {}, {.accumulate = 4});
  CHECK(mentions(
      error_of([&] { (void)optim::describe(four, std::numeric_limits<std::int64_t>::max()); }),
      {"[SGD]", "overflow"}));
}

TEST_CASE("AveragedWeights that outlive their optimizer put the weights back") {
  Tensor w = parameter({1, 2}, {2});
  auto opt = std::make_optional<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions{.lr = 1},
                                            optim::StepOptions{.ema = 0.5});
  opt->backward(objective(w, {1}));
  REQUIRE(opt->step());
  {
    const optim::AveragedWeights guard(*opt);
    CHECK(values_of(w) == std::vector<double>{0.5, 1.5});
    opt.reset();
    CHECK(values_of(w) == std::vector<double>{0.5, 1.5});
  }
  CHECK(values_of(w) == std::vector<double>{0, 1});
}

TEST_CASE("[S28] weights that are written while AveragedWeights live stay as written") {
  const DType dtype = GENERATE(f32, f16);
  const auto parameter_of = [dtype](double value) {
    return full({2}, value, dtype).set_requires_grad();
  };
  Tensor written = parameter_of(1), kept = parameter_of(1);
  optim::SGD opt({written, kept}, {.lr = 1}, {.loss_scale = optim::LossScale::none(), .ema = 0.5});
  const auto train = [&] {
    opt.backward(sum(written.to(f32)) + sum(kept.to(f32)));
    REQUIRE(opt.step());
  };
  train();
  {
    const optim::AveragedWeights guard(opt);
    CHECK(values_of(written) == std::vector<double>{0.5, 0.5});
    const NoGrad no_grad;
    copy_(written, full({2}, 8.0, dtype));
  }
  CHECK(values_of(written) == std::vector<double>{8, 8});
  CHECK(values_of(kept) == std::vector<double>{0, 0});
  train();
  CHECK(values_of(written) == std::vector<double>{7, 7});
  CHECK(values_of(kept) == std::vector<double>{-1, -1});
}

TEST_CASE("AveragedWeights of a plan that outlive it leave the weights alone") {
  nn::Linear net(2, 1);
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.ema = 0.5});
  const auto step = [&] {
    opt.backward(mse_loss(net(ones({1, 2})), zeros({1, 1})));
    return opt.step().applied();
  };
  REQUIRE(step());
  const auto before = values_of(net.weight);
  std::optional<optim::AveragedWeights> averages;
  plan_memory([&] { averages.emplace(opt); });
  CHECK(values_of(net.weight) == before);
  averages.reset();
  CHECK(values_of(net.weight) == before);
  CHECK(step());
}

TEST_CASE("AveragedWeights follow an optimizer that is moved") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.ema = 0.5});
  std::optional<optim::SGD> other;
  {
    const optim::AveragedWeights guard(opt);
    other = std::move(opt);
    CHECK(mentions(error_of([&] { other->backward(objective(w, {1})); }), {"AveragedWeights"}));
  }
  other->backward(objective(w, {1}));
  CHECK(other->step());
}

TEST_CASE("[S01][S09][S17] a step in which no parameter got a gradient is skipped, and warned of") {
  Tensor w = parameter({1, 2}, {2}), v = parameter({3}, {1}), stray = parameter({1}, {1});
  optim::AdamW opt({w, v}, {.lr = optim::cosine(0.1, 10), .weight_decay = 0.5},
                   {.loss_scale = optim::LossScale::dynamic({.growth_interval = 1}), .ema = 0.5});
  opt.backward(objective(w, {1}) + objective(v, {1}));
  REQUIRE(opt.step());
  const Bits before = bits_of_training(opt) + bits_of(state_of(opt, "loss_scale"));
  const double lr = opt.lr();
  Warnings warnings;
  for (int i = 0; i < 2; ++i) {
    opt.backward(objective(stray, {1}), 4);
    const optim::StepReport report = opt.step();
    CHECK(report.status() == StepStatus::skipped_no_gradients);
    CHECK(report.skipped());
    CHECK(report.non_finite() == optim::NonFinite::none);
    CHECK(report.applied_steps() == 1);
    CHECK(report.skipped_steps() == 1 + i);
    CHECK(report.weight() == 4);
    CHECK(to_string(report) == "skipped: no parameter has received a gradient");
  }
  CHECK(bits_of_training(opt) + bits_of(state_of(opt, "loss_scale")) == before);
  CHECK(opt.lr() == lr);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"[AdamW]", "no gradient has reached any parameter",
                                     "parameter 0", "[2]", "parameter 1"}));
  opt.backward(objective(w, {1}));
  CHECK(opt.step().applied_steps() == 2);
}

TEST_CASE(
    "zero_grad() after a step() in mid-cycle, as in loops without accumulation, is warned of") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 0.5}, {.accumulate = 2});
  Warnings warnings;
  for (int i = 0; i < 3; ++i) {
    opt.backward(objective(w, {1}));
    opt.step();
    opt.zero_grad();
  }
  CHECK(w.item() == 1);  // no cycle has ended
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"[SGD]", "drops a cycle", "1 of 2 micro-steps",
                                     "leave zero_grad() out of the loop"}));

  // Other orders are meant: a drop by name, and one of a micro-step that step() has not counted.
  Tensor v = parameter({1}, {1});
  optim::SGD other({v}, {.lr = 0.5}, {.accumulate = 2});
  other.backward(objective(v, {1}));
  other.step();
  other.flush(optim::Partial::drop);
  other.backward(objective(v, {1}));
  other.step();
  other.backward(objective(v, {1}));
  other.zero_grad();
  for (int i = 0; i < 2; ++i) {
    other.backward(objective(v, {1}));
    other.step();
  }
  other.zero_grad();  // after a whole cycle
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("a layer that was assigned to after the optimizer was made is warned of, by name") {
  struct Net : nn::Module {
    nn::Linear in{2, 3}, out{3, 1};
    FIRN_MEMBERS(in, out)
    Tensor forward(const Tensor& x) override { return out(in(x)); }
  } net;
  const auto train = [&net](optim::Optimizer& opt, int steps) {
    for (int i = 0; i < steps; ++i) {
      opt.backward(mse_loss(net(ones({4, 2})), zeros({4, 1})));
      opt.step();
    }
  };
  optim::SGD opt(net.named_parameters(), {.lr = 0.01});
  Warnings warnings;
  train(opt, 2);
  CHECK(warnings.texts.empty());
  net.in = nn::Linear(2, 3);
  train(opt, 3);
  REQUIRE(warnings.texts.size() == 1);
  INFO(warnings.texts[0]);
  CHECK(mentions(warnings.texts[0],
                 {"[SGD]", "nothing but the optimizer holds", "parameter 0, \"in.weight\"",
                  "parameter 1, \"in.bias\"", "make the optimizer afterwards"}));
  CHECK_FALSE(mentions(warnings.texts[0], {"out.weight"}));
}

TEST_CASE("a model whose parameters were all assigned to is warned of once") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {.lr = 1});
  Warnings warnings;
  w = parameter({3, 4}, {2});
  for (int i = 0; i < 2; ++i) {
    opt.backward(objective(w, {1}));
    CHECK(opt.step().status() == StepStatus::skipped_no_gradients);
  }
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"nothing but the optimizer holds", "parameter 0, [2]"}));
}

TEST_CASE("a parameter that a cycle does not use, or that is copied and moved, is not warned of") {
  Tensor w = parameter({1}, {1}), unused = parameter({1}, {1});
  nn::Linear layer(1, 1);
  optim::SGD opt({w, unused, layer.weight}, {.lr = 1});
  const nn::Linear moved = std::move(layer);
  const Warnings warnings;
  opt.backward(objective(w, {1}));
  CHECK(opt.step());
  CHECK(warnings.texts.empty());
  CHECK(moved.weight.defined());
}

TEST_CASE("f32 weights under f16 autocast without a loss scale are warned of once") {
  const auto texts_of = [](DType mode, DType dtype, const optim::StepOptions& step, bool learns) {
    nn::Linear net(2, 1, {.dtype = dtype});
    optim::SGD opt(net.parameters(), {.lr = 0.01}, step);
    const Warnings warnings;
    const auto loss_of = [&](std::optional<DType> guarded) {
      std::optional<Autocast> guard;
      if (guarded) guard.emplace(*guarded);
      return mse_loss(net(ones({4, 2}, dtype)), zeros({4, 1}, guarded.value_or(dtype)));
    };
    for (int i = 0; i < 2; ++i) {
      if (!learns) {  // an evaluation alone
        const NoGrad guard;
        loss_of(mode);
      }
      opt.backward(loss_of(learns ? std::optional(mode) : std::nullopt));
      opt.step();
    }
    return warnings.texts;
  };
  const auto texts = texts_of(f16, f32, {}, true);
  REQUIRE(texts.size() == 1);
  CHECK(mentions(texts[0], {"[SGD]", "no loss scale is set", "LossScale::dynamic()"}));
  CHECK(texts_of(f16, f32, {.loss_scale = optim::LossScale::dynamic()}, true).empty());
  CHECK(texts_of(f16, f32, {.loss_scale = optim::LossScale::none()}, true).empty());
  CHECK(texts_of(f16, f16, {}, true).empty());
  CHECK(texts_of(bf16, f32, {}, true).empty());
  CHECK(texts_of(f16, f32, {}, false).empty());
}

TEST_CASE("a plan gives no warning of an optimizer: the step that it plans does, once") {
  using Step = std::function<void()>;
  const auto texts_of = [](const Step& step) {
    const Warnings warnings;
    plan_memory(step);
    plan_memory(step);
    const auto in_plans = warnings.texts;
    CHECK(in_plans == std::vector<std::string>());
    for (int i = 0; i < 3; ++i) step();
    return warnings.texts;
  };
  const auto given_once = [&](const char* text, const Step& step) {
    CAPTURE(text);
    const auto texts = texts_of(step);
    REQUIRE(texts.size() == 1);
    CHECK(mentions(texts[0], {text}));
  };
  Tensor w = parameter({1}, {1}), other = parameter({1}, {1}), replaced = parameter({1}, {1});
  {
    optim::SGD opt({w}, {.lr = 0.5});
    given_once("without a backward()", [&] { opt.step(); });
    given_once("no gradient has reached any parameter", [&] {
      opt.backward(objective(other, {1}));
      opt.step();
    });
  }
  {
    optim::SGD opt({w}, {.lr = 0.5}, {.accumulate = 2});
    given_once("zero_grad() drops a cycle", [&] {
      opt.backward(objective(w, {1}));
      opt.step();
      opt.zero_grad();
    });
  }
  {
    optim::SGD opt({replaced}, {.lr = 0.5});
    replaced = parameter({1}, {1});
    given_once("nothing but the optimizer holds", [&] {
      opt.backward(objective(replaced, {1}));
      opt.step();
    });
  }
  nn::Linear net(2, 1);
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  given_once("no loss scale is set", [&] {
    const Autocast guard(f16);
    opt.backward(mse_loss(net(ones({4, 2})), zeros({4, 1}, f16)));
    opt.step();
  });
}

TEST_CASE("a cycle whose second micro-step reaches a parameter is applied, without a warning") {
  Tensor w = parameter({1}, {1}), stray = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 2});
  const Warnings warnings;
  opt.backward(objective(stray, {1}));
  CHECK(opt.step().accumulating());
  opt.backward(objective(w, {1}));
  CHECK(opt.step());
  CHECK(w.item() == 0.5);  // the weight counts both micro-steps
  CHECK(warnings.texts.empty());
}

TEST_CASE("[S16] in step_all() an optimizer without gradients is skipped, and the other is not") {
  const optim::LossScaler scaler(optim::LossScale::dynamic({.init = 8}));
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1}), stray = parameter({1}, {1});
  optim::SGD a({w}, {.lr = 1}, {.scaler = scaler}), b({v}, {.lr = 1}, {.scaler = scaler});
  Warnings warnings;
  a.backward(objective(w, {1}));
  b.backward(objective(stray, {1}));
  const auto reports = step_all({&a, &b});
  CHECK(reports[0].applied());
  CHECK(reports[1].status() == StepStatus::skipped_no_gradients);
  CHECK(scaler.scale() == 8);
  CHECK(v.item() == 1);
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("[S24] step() without a backward() since the last one is no part of a cycle") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 2});
  Warnings warnings;
  CHECK(opt.step().accumulating());
  CHECK(opt.step().micro_steps() == 0);
  CHECK(opt.cycle_position() == 0);
  opt.backward(objective(w, {1}));
  CHECK(opt.step().accumulating());
  CHECK(opt.step().accumulating());  // does not end the cycle
  CHECK(opt.cycle_position() == 1);
  CHECK(w.item() == 0);
  opt.backward(objective(w, {3}));
  opt.backward(objective(w, {5}));  // two, and one call: counts once
  const optim::StepReport report = opt.step();
  CHECK(report.applied());
  CHECK(report.micro_steps() == 3);
  CHECK(w.item() == -3);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(mentions(warnings.texts[0], {"[SGD]", "without a backward()", "loss.backward()"}));

  optim::SGD single({parameter({0}, {1})}, {});
  CHECK(single.step().accumulating());
  CHECK(single.last_report().skipped_steps() == 0);
}

TEST_CASE("[S16][S24] step_all() counts if one of the optimizers has had a backward()") {
  const optim::LossScaler scaler(optim::LossScale::fixed(8));
  Tensor w = parameter({0}, {1}), v = parameter({0}, {1});
  const optim::StepOptions options{.accumulate = 2, .scaler = scaler};
  optim::SGD a({w}, {.lr = 1}, options), b({v}, {.lr = 1}, options);
  Warnings warnings;
  CHECK(step_all({&a, &b})[0].accumulating());
  CHECK(warnings.texts.size() == 1);
  CHECK(a.cycle_position() == 0);
  a.backward(objective(w, {1}));
  CHECK(step_all({&a, &b})[0].accumulating());
  b.backward(objective(v, {1}));
  const auto reports = step_all({&a, &b});
  CHECK(reports[0].applied());
  CHECK(reports[1].applied());
}

}  // namespace
}  // namespace firn::testing
