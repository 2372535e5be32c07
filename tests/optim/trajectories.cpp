// Optimizers against PyTorch's and against the papers' algorithms in NumPy
// (tests/goldens/optim/optim.py), and against first steps worked out by hand.
#include <cmath>
#include <functional>
#include <memory>
#include <type_traits>

#include "optim/golden_runs.h"
#include "optim/problem.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const GoldenRun& r,
                                                 std::vector<Tensor> parameters) {
  const optim::Schedule lr = r.get("lr", 0);
  const optim::StepOptions step{.clip_norm = r.get("clip_norm", 0),
                                .maximize = r.get("maximize", 0) != 0};
  const auto make_one = [&]<class Algorithm>(std::type_identity<Algorithm>, const auto& options) {
    return std::make_unique<Algorithm>(std::move(parameters), options, step);
  };
  const double beta1 = r.get("beta1", 0.9), eps = r.get("eps", 1e-8);
  const double decay = r.get("weight_decay", 0);
  if (r.algorithm == "SGD")
    return make_one(std::type_identity<optim::SGD>(),
                    optim::SGDOptions{.lr = lr,
                                      .momentum = r.get("momentum", 0),
                                      .dampening = r.get("dampening", 0),
                                      .nesterov = r.get("nesterov", 0) != 0,
                                      .weight_decay = decay});
  if (r.algorithm == "Adam")
    return make_one(std::type_identity<optim::Adam>(),
                    optim::AdamOptions{.lr = lr,
                                       .beta1 = beta1,
                                       .beta2 = r.get("beta2", 0.999),
                                       .eps = eps,
                                       .weight_decay = decay,
                                       .amsgrad = r.get("amsgrad", 0) != 0});
  if (r.algorithm == "NAdam")
    return make_one(
        std::type_identity<optim::NAdam>(),
        optim::NAdamOptions{.lr = lr,
                            .beta1 = beta1,
                            .beta2 = r.get("beta2", 0.999),
                            .eps = eps,
                            .momentum_decay = r.get("momentum_decay", 4e-3),
                            .weight_decay = decay,
                            .decoupled_weight_decay = r.get("decoupled_weight_decay", 0) != 0});
  if (r.algorithm == "RAdam")
    return make_one(
        std::type_identity<optim::RAdam>(),
        optim::RAdamOptions{.lr = lr,
                            .beta1 = beta1,
                            .beta2 = r.get("beta2", 0.999),
                            .eps = eps,
                            .weight_decay = decay,
                            .decoupled_weight_decay = r.get("decoupled_weight_decay", 0) != 0});
  if (r.algorithm == "Adadelta")
    return make_one(
        std::type_identity<optim::Adadelta>(),
        optim::AdadeltaOptions{
            .lr = lr, .rho = r.get("rho", 0.9), .eps = r.get("eps", 1e-6), .weight_decay = decay});
  if (r.algorithm == "Rprop")
    return make_one(std::type_identity<optim::Rprop>(),
                    optim::RpropOptions{.lr = lr,
                                        .eta_minus = r.get("eta_minus", 0.5),
                                        .eta_plus = r.get("eta_plus", 1.2),
                                        .step_min = r.get("step_min", 1e-6),
                                        .step_max = r.get("step_max", 50)});
  if (r.algorithm == "RMSprop")
    return make_one(std::type_identity<optim::RMSprop>(),
                    optim::RMSpropOptions{.lr = lr,
                                          .alpha = r.get("alpha", 0.99),
                                          .eps = eps,
                                          .momentum = r.get("momentum", 0),
                                          .centered = r.get("centered", 0) != 0,
                                          .weight_decay = decay});
  if (r.algorithm == "Adagrad")
    return make_one(std::type_identity<optim::Adagrad>(),
                    optim::AdagradOptions{.lr = lr,
                                          .lr_decay = r.get("lr_decay", 0),
                                          .eps = r.get("eps", 1e-10),
                                          .initial_accumulator = r.get("initial_accumulator", 0),
                                          .weight_decay = decay});
  if (r.algorithm == "LAMB")
    return make_one(std::type_identity<optim::LAMB>(),
                    optim::LAMBOptions{.lr = lr,
                                       .beta1 = beta1,
                                       .beta2 = r.get("beta2", 0.999),
                                       .eps = r.get("eps", 1e-6),
                                       .weight_decay = r.get("weight_decay", 0.01)});
  if (r.algorithm == "Lion")
    return make_one(
        std::type_identity<optim::Lion>(),
        optim::LionOptions{
            .lr = lr, .beta1 = beta1, .beta2 = r.get("beta2", 0.99), .weight_decay = decay});
  REQUIRE(r.algorithm == "AdamW");
  return make_one(std::type_identity<optim::AdamW>(),
                  optim::AdamWOptions{.lr = lr,
                                      .beta1 = beta1,
                                      .beta2 = r.get("beta2", 0.999),
                                      .eps = eps,
                                      .weight_decay = r.get("weight_decay", 0.01),
                                      .amsgrad = r.get("amsgrad", 0) != 0});
}

// The 17 values of the golden problem: a [3, 4] and b [5].
std::vector<Tensor> split(const std::vector<double>& v, DType dtype) {
  return {make({v.begin(), v.begin() + 12}, {3, 4}, dtype),
          make({v.begin() + 12, v.end()}, {5}, dtype)};
}

TEST_CASE("every step of every optimizer is the reference's", "[once]") {
  const GoldenRuns goldens = read_runs("optim.safetensors");
  REQUIRE(goldens.runs.size() == 80);
  for (const GoldenRun& run : goldens.runs) {
    const auto goal = split(goldens.data.at("goal"), run.dtype);
    const auto curve = split(goldens.data.at("curve"), run.dtype);
    auto weights = split(goldens.data.at("initial"), run.dtype);
    for (Tensor& w : weights) w.set_requires_grad();
    const auto opt = make_optimizer(run, weights);
    REQUIRE(run.steps.size() == 12);
    for (std::size_t step = 1; step <= run.steps.size(); ++step) {
      Tensor loss;
      for (std::size_t i = 0; i < 2; ++i) {
        if (i == 1 && static_cast<double>(step) < run.get("b_from", 0)) continue;
        const Tensor part = sum(0.5 * curve[i] * square(weights[i] - goal[i]));
        loss = loss.defined() ? loss + part : part;
      }
      opt->backward(loss);
      REQUIRE(opt->step());
      auto got = values_of(weights[0]);
      for (const double v : values_of(weights[1])) got.push_back(v);
      expect_close(run.title + ", step " + std::to_string(step), got, run.steps[step - 1],
                   run.dtype == f64 ? 1e-14 : 2e-6);
    }
  }
}

// The first step from w = 1 with gradient 2 and learning rate 0.1.
double first_step(optim::Optimizer&& opt) {
  opt.backward(objective(opt.parameters()[0], {2}));
  REQUIRE(opt.step());
  return opt.parameters()[0].item();
}

TEST_CASE("first steps by hand") {
  const auto one = [] { return std::vector<Tensor>{parameter({1}, {1}, f64)}; };
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1})) == Approx(0.8));
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .weight_decay = 0.5})) == Approx(0.75));
  // The first momentum is the gradient itself, whatever the dampening.
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .momentum = 0.9, .dampening = 0.5})) ==
        Approx(0.8));
  CHECK(first_step(optim::SGD(one(), {.lr = 0.1, .momentum = 0.9, .nesterov = true})) ==
        Approx(1 - 0.1 * (2 + 0.9 * 2)));
  // With bias correction the first step of Adam is lr * g / (|g| + eps).
  CHECK(first_step(optim::Adam(one(), {.lr = 0.1, .eps = 0.5})) == Approx(1 - 0.1 * 2 / 2.5));
  CHECK(first_step(optim::Adam(one(), {.lr = 0.1, .eps = 0.5, .weight_decay = 1})) ==
        Approx(1 - 0.1 * 3 / 3.5));
  CHECK(first_step(optim::AdamW(one(), {.lr = 0.1, .eps = 0.5, .weight_decay = 1})) ==
        Approx(1 - 0.1 - 0.1 * 2 / 2.5));
}

TEST_CASE("first steps of RMSprop, Adagrad, LAMB and Lion by hand") {
  const auto one = [] { return std::vector<Tensor>{parameter({1}, {1}, f64)}; };
  // v = (1 - 0.75) * 4 = 1.
  CHECK(first_step(optim::RMSprop(one(), {.lr = 0.1, .alpha = 0.75, .eps = 0.25})) ==
        Approx(1 - 0.1 * 2 / 1.25));
  // Centered: a = (1 - 0.75) * 2 = 0.5, v - a^2 = 0.75.
  CHECK(first_step(optim::RMSprop(one(), {.lr = 0.1, .alpha = 0.75, .centered = true})) ==
        Approx(1 - 0.1 * 2 / std::sqrt(0.75)));
  CHECK(first_step(optim::Adagrad(one(), {.lr = 0.1, .initial_accumulator = 5})) ==
        Approx(1 - 0.1 * 2 / 3));
  // The update, whatever its length, becomes as long as the weight.
  CHECK(first_step(optim::LAMB(one(), {.lr = 0.1})) == Approx(1 - 0.1));
  CHECK(first_step(optim::LAMB({parameter({-3}, {1}, f64)}, {.lr = 0.1, .weight_decay = 0})) ==
        Approx(-3 - 0.1 * 3));
  // A weight of zero has no length: the ratio is 1.
  CHECK(first_step(optim::LAMB({parameter({0}, {1}, f64)}, {.lr = 0.1})) == Approx(-0.1));
  CHECK(first_step(optim::Lion(one(), {.lr = 0.1, .weight_decay = 0.5})) ==
        Approx(1 - 0.1 * (1 + 0.5)));
}

TEST_CASE("first steps of NAdam, RAdam, Adadelta and Rprop by hand") {
  const auto one = [] { return std::vector<Tensor>{parameter({1}, {1}, f64)}; };
  // m = (1 - 0.5) 2 = 1; c_1 = 0.25 and c_2 = 0.25 without decay; v is corrected to 4.
  CHECK(
      first_step(optim::NAdam(one(), {.lr = 0.1, .beta1 = 0.5, .eps = 0.5, .momentum_decay = 0})) ==
      Approx(1 - 0.1 * (0.75 / 0.75 * 2 + 0.25 / (1 - 0.25 * 0.25) * 1) / 2.5));
  // The first step is not rectified: it is lr * g.
  CHECK(first_step(optim::RAdam(one(), {.lr = 0.1})) == Approx(1 - 0.1 * 2));
  CHECK(first_step(optim::RAdam(one(), {.lr = 0.1, .weight_decay = 0.5})) == Approx(1 - 0.1 * 2.5));
  CHECK(first_step(optim::RAdam(
            one(), {.lr = 0.1, .weight_decay = 0.5, .decoupled_weight_decay = true})) ==
        Approx(1 - 0.1 * 0.5 - 0.1 * 2));
  // v = (1 - 0.75) 4 = 1, a = 0.
  CHECK(first_step(optim::Adadelta(one(), {.rho = 0.75, .eps = 0.25})) ==
        Approx(1 - std::sqrt(0.25) / std::sqrt(1.25) * 2));
  CHECK(first_step(optim::Rprop(one(), {.lr = 0.1})) == Approx(1 - 0.1));
  CHECK(first_step(optim::Rprop(one(), {.lr = 0.1, .step_min = 0.25})) == Approx(1 - 0.25));
}

TEST_CASE("Rprop: a step size grows while the sign stays, and shrinks without a step if it turns") {
  Tensor w = parameter({1}, {1}, f64);
  optim::Rprop opt({w}, {.lr = 0.1, .eta_minus = 0.5, .eta_plus = 2, .step_max = 0.3});
  double expected = 1;
  const auto run = [&](double gradient, double step) {
    opt.backward(objective(w, {gradient}));
    REQUIRE(opt.step());
    CHECK(w.item() == Approx(expected -= step));
  };
  run(5, 0.1);
  run(0.01, 0.2);
  run(7, 0.3);     // the largest
  run(-3, 0);      // it turned: 0.15 from now on
  run(-3, -0.15);  // after a turn no sign is remembered
  run(0, 0);
  run(-1, -0.15);
}

TEST_CASE("maximize goes up, by every rule, and reports the same gradient") {
  for (const bool maximize : {false, true}) {
    Tensor w = parameter({1, 2}, {2}, f64);
    optim::SGD opt({w}, {.lr = 0.1}, {.clip_norm = 1, .maximize = maximize});
    opt.backward(objective(w, {3, 4}));
    const optim::StepReport report = opt.step();
    CHECK(report.norm() == Approx(5));
    const double up = maximize ? 0.1 : -0.1;
    CHECK(w[0].item() == Approx(1 + up * 0.6));
    CHECK(w[1].item() == Approx(2 + up * 0.8));
    CHECK((optim::describe(opt).find("maximizing") != std::string::npos) == maximize);
  }
}

TEST_CASE("a parameter's trust ratio is its own, and is that of all of its chunks") {
  const auto values = Rng(4).uniforms(20'001, -1, 1), gradient = Rng(5).uniforms(20'001, -1, 1);
  Tensor small = parameter({3, 4}, {2}, f64), big = parameter(values, {20'001}, f64);
  optim::LAMB opt({small, big}, {.lr = 0.1, .eps = 1e-12, .weight_decay = 0});
  opt.backward(objective(small, {1, -1}) + objective(big, gradient));
  REQUIRE(opt.step());
  // The first update is the sign of the gradient: its length is the root of the count.
  expect_close("small", values_of(small), {3 - 0.5 / std::sqrt(2.0), 4 + 0.5 / std::sqrt(2.0)},
               1e-10);
  double squares = 0;
  for (const double v : values) squares += v * v;
  const double ratio = std::sqrt(squares / 20'001);
  std::vector<double> want;
  for (std::size_t i = 0; i < values.size(); ++i)
    want.push_back(values[i] - 0.1 * ratio * (gradient[i] < 0 ? -1 : 1));
  expect_close("big", values_of(big), want, 1e-6);  // eps beside the smallest gradients
}

TEST_CASE("a group has its own scale of the learning rate and its own weight decay") {
  Tensor a = parameter({1}, {1}, f64), b = parameter({1}, {1}, f64);
  optim::SGD opt({{.parameters = {a}, .lr_scale = 0.5, .weight_decay = 0.0}, {.parameters = {b}}},
                 {.lr = 0.1, .weight_decay = 1});
  opt.backward(objective(a, {2}) + objective(b, {2}));
  REQUIRE(opt.step());
  CHECK(a.item() == Approx(1 - 0.05 * 2));
  CHECK(b.item() == Approx(1 - 0.1 * 3));
}

// The later rules with every kind of state. No loss scale, under which gradients of some 1
// would overflow f16.
std::vector<std::unique_ptr<optim::Optimizer>> more_optimizers(
    const std::function<std::vector<Tensor>()>& parameters,
    const optim::StepOptions& step = {.loss_scale = optim::LossScale::none()}) {
  std::vector<std::unique_ptr<optim::Optimizer>> out;
  out.push_back(std::make_unique<optim::RMSprop>(
      parameters(),
      optim::RMSpropOptions{
          .lr = 0.1, .eps = 1e-3, .momentum = 0.9, .centered = true, .weight_decay = 0.1},
      step));
  out.push_back(std::make_unique<optim::Adagrad>(
      parameters(),
      optim::AdagradOptions{
          .lr = 0.1, .lr_decay = 0.1, .initial_accumulator = 0.1, .weight_decay = 0.1},
      step));
  out.push_back(std::make_unique<optim::LAMB>(
      parameters(), optim::LAMBOptions{.lr = 0.1, .weight_decay = 0.1}, step));
  out.push_back(std::make_unique<optim::Lion>(
      parameters(), optim::LionOptions{.lr = 0.1, .weight_decay = 0.1}, step));
  out.push_back(std::make_unique<optim::Adam>(
      parameters(), optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}, step));
  out.push_back(std::make_unique<optim::NAdam>(
      parameters(), optim::NAdamOptions{.lr = 0.1, .weight_decay = 0.1}, step));
  out.push_back(std::make_unique<optim::RAdam>(
      parameters(), optim::RAdamOptions{.lr = 0.1, .weight_decay = 0.1}, step));
  out.push_back(std::make_unique<optim::Adadelta>(
      parameters(), optim::AdadeltaOptions{.eps = 1e-3, .weight_decay = 0.1}, step));
  out.push_back(std::make_unique<optim::Rprop>(parameters(), optim::RpropOptions{.lr = 0.1}, step));
  return out;
}

TEST_CASE("[S17] the later rules leave a parameter without a gradient alone") {
  for (const auto& opt : more_optimizers([] {
         return std::vector<Tensor>{parameter({1, 2}, {2}), parameter({3, 4}, {2})};
       })) {
    const auto bits_of_second = [&] {
      Bits out;
      for (const auto& s : opt->state())
        if (s.name.starts_with("parameters.1.")) out = out + bits_of(s.tensor);
      return out;
    };
    const std::vector<Tensor> p = opt->parameters();
    opt->backward(objective(p[0], {1}) + objective(p[1], {-1}));
    REQUIRE(opt->step());
    const Bits before = bits_of_second();
    opt->backward(objective(p[0], {1}));
    REQUIRE(opt->step());
    CHECK(bits_of_second() == before);
    CHECK(values_of(state_of(*opt, "update_counts")) == std::vector<double>{2, 1});
  }
}

TEST_CASE("[S09] a skipped step changes no bit of the later rules") {
  for (const DType dtype : {f32, f64, f16, bf16})
    for (const auto& opt : more_optimizers([&] {
           return std::vector<Tensor>{parameter(Rng(2).uniforms(40, -1, 1), {40}, dtype),
                                      parameter({3, 4}, {2}, dtype)};
         })) {
      const std::vector<Tensor> p = opt->parameters();
      const auto run = [&](double second) {
        opt->backward(objective(p[0], {0.5}) + objective(p[1], {second, 1}));
        return opt->step();
      };
      REQUIRE(run(1));
      const Bits before = bits_of_training(*opt);
      CHECK(run(HUGE_VAL).skipped());
      CHECK(bits_of_training(*opt) == before);
      CHECK(gradients_are_zero(*opt));
      CHECK(run(1));
      CHECK(!(bits_of_training(*opt) == before));
    }
}

TEST_CASE("the later rules train 16-bit weights as f32 ones, by their masters") {
  const auto start = [](DType dtype) {
    return [dtype] {
      // Values that f16 and bf16 hold, so that all begin alike.
      std::vector<double> values;
      for (int i = 0; i < 50; ++i) values.push_back((i % 17 - 8) / 16.0);
      return std::vector<Tensor>{parameter(values, {50}, dtype)};
    };
  };
  for (const DType dtype : {f16, bf16}) {
    const auto reference = more_optimizers(start(f32)), tested = more_optimizers(start(dtype));
    for (std::size_t k = 0; k < tested.size(); ++k) {
      for (int step = 0; step < 5; ++step) {
        // The same gradients, exact in 16 bits, for both.
        std::vector<double> gradient;
        for (int i = 0; i < 50; ++i) gradient.push_back(((i * 7 + step * 3) % 13 - 6) / 8.0);
        for (optim::Optimizer* opt : {tested[k].get(), reference[k].get()}) {
          opt->backward(objective(opt->parameters()[0], gradient));
          REQUIRE(opt->step());
        }
      }
      const auto master = values_of(state_of(*tested[k], "parameters.0.master"));
      expect_same("master", master, values_of(reference[k]->parameters()[0]));
      expect_same("weight", values_of(tested[k]->parameters()[0]),
                  values_of(cast(make(master, {50}, f32), dtype)));
    }
  }
}

TEST_CASE("[S30] the later rules see gradients that are clipped by value") {
  const auto start = [] { return std::vector<Tensor>{parameter({1, -2, 3}, {3})}; };
  const auto clipped = more_optimizers(start, {.clip_value = 0.5}), plain = more_optimizers(start);
  for (std::size_t k = 0; k < plain.size(); ++k)
    for (int step = 0; step < 3; ++step) {
      clipped[k]->backward(objective(clipped[k]->parameters()[0], {4, -0.25, -4}));
      plain[k]->backward(objective(plain[k]->parameters()[0], {0.5, -0.25, -0.5}));
      CHECK(clipped[k]->step().norm() == Approx(std::sqrt(2 * 16 + 0.0625)));
      REQUIRE(plain[k]->step());
      expect_same("weights", values_of(clipped[k]->parameters()[0]),
                  values_of(plain[k]->parameters()[0]));
    }
}

TEST_CASE("a trust ratio is found without masters, too") {
  for (const DType dtype : {f16, bf16}) {
    Tensor w = parameter({3, 4}, {2}, dtype);
    optim::LAMB opt({w}, {.lr = 0.1, .eps = 1e-12, .weight_decay = 0},
                    {.loss_scale = optim::LossScale::none(), .stochastic_rounding = true});
    opt.backward(objective(w, {1, -1}));
    REQUIRE(opt.step());
    // Each moves by a tenth of |w| / sqrt(2), and is rounded up or down.
    const double step = 0.5 / std::sqrt(2.0);
    expect_close("weight", values_of(w), {3 - step, 4 + step}, dtype == f16 ? 0x1p-8 : 0x1p-5);
  }
}

TEST_CASE("[S29] the later rules give the same bits for any number of threads", "[once]") {
  std::vector<std::vector<Bits>> runs;
  for (const int n : {1, 2, 3}) {
    const Threads threads(n);
    std::vector<Bits>& run = runs.emplace_back();
    for (const auto& opt : more_optimizers([] {
           return std::vector<Tensor>{parameter(Rng(1).uniforms(7, -1, 1), {7}),
                                      parameter(Rng(2).uniforms(100'003, -1, 1), {100'003}, f16)};
         })) {
      const std::vector<Tensor> p = opt->parameters();
      for (std::uint64_t step = 3; step < 6; ++step) {
        opt->backward(objective(p[0], {0.5}) + objective(p[1], Rng(step).uniforms(100'003, -1, 1)));
        REQUIRE(opt->step());
      }
      run.push_back(bits_of_training(*opt));
    }
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] == runs[2]);
}

TEST_CASE("options of the later rules outside their range are refused") {
  using Parameters = std::vector<Tensor>;
  Tensor w = parameter({1}, {1});
  const auto holds = [](const std::string& text, const char* a, const char* b) {
    INFO(text);
    return text.find(a) != std::string::npos && text.find(b) != std::string::npos;
  };
  const auto rms = [&](const optim::RMSpropOptions& o) {
    return error_of([&] { optim::RMSprop(Parameters{w}, o); });
  };
  CHECK(holds(rms({.alpha = 1}), "[RMSprop]", "alpha is 1"));
  CHECK(holds(rms({.eps = 0}), "[RMSprop]", "eps is 0"));
  CHECK(holds(rms({.momentum = -0.5}), "[RMSprop]", "momentum is -0.5"));
  CHECK(holds(rms({.weight_decay = -1}), "[RMSprop]", "weight_decay is -1"));
  const auto adagrad = [&](const optim::AdagradOptions& o) {
    return error_of([&] { optim::Adagrad(Parameters{w}, o); });
  };
  CHECK(holds(adagrad({.lr_decay = -1}), "[Adagrad]", "lr_decay is -1"));
  CHECK(holds(adagrad({.eps = std::nan("")}), "[Adagrad]", "eps is nan"));
  CHECK(holds(adagrad({.initial_accumulator = -1}), "[Adagrad]", "initial_accumulator is -1"));
  const auto lamb = [&](const optim::LAMBOptions& o) {
    return error_of([&] { optim::LAMB(Parameters{w}, o); });
  };
  CHECK(holds(lamb({.beta1 = 1}), "[LAMB]", "beta1 is 1"));
  CHECK(holds(lamb({.beta2 = -1}), "[LAMB]", "beta2 is -1"));
  CHECK(holds(lamb({.eps = -1}), "[LAMB]", "eps is -1"));
  const auto lion = [&](const optim::LionOptions& o) {
    return error_of([&] { optim::Lion(Parameters{w}, o); });
  };
  CHECK(holds(lion({.beta1 = 2}), "[Lion]", "beta1 is 2"));
  CHECK(holds(lion({.beta2 = 1}), "[Lion]", "beta2 is 1"));
  const auto nadam = [&](const optim::NAdamOptions& o) {
    return error_of([&] { optim::NAdam(Parameters{w}, o); });
  };
  CHECK(holds(nadam({.beta1 = 1}), "[NAdam]", "beta1 is 1"));
  CHECK(holds(nadam({.momentum_decay = -1}), "[NAdam]", "momentum_decay is -1"));
  const auto radam = [&](const optim::RAdamOptions& o) {
    return error_of([&] { optim::RAdam(Parameters{w}, o); });
  };
  CHECK(holds(radam({.beta2 = 1}), "[RAdam]", "beta2 is 1"));
  CHECK(holds(radam({.eps = 0}), "[RAdam]", "eps is 0"));
  const auto adadelta = [&](const optim::AdadeltaOptions& o) {
    return error_of([&] { optim::Adadelta(Parameters{w}, o); });
  };
  CHECK(holds(adadelta({.rho = 1}), "[Adadelta]", "rho is 1"));
  CHECK(holds(adadelta({.weight_decay = -1}), "[Adadelta]", "weight_decay is -1"));
  const auto rprop = [&](const optim::RpropOptions& o) {
    return error_of([&] { optim::Rprop(Parameters{w}, o); });
  };
  CHECK(holds(rprop({.eta_minus = 1}), "[Rprop]", "eta_minus and eta_plus are 1 and 1.2"));
  CHECK(holds(rprop({.eta_plus = 1}), "[Rprop]", "eta_minus and eta_plus are 0.5 and 1"));
  CHECK(
      holds(rprop({.step_min = 2, .step_max = 1}), "[Rprop]", "step_min and step_max are 2 and 1"));
  CHECK(holds(error_of([&] {
                optim::Adam(Parameters{w},
                            {.amsgrad = true, .state = optim::StatePrecision::bits8});
              }),
              "[Adam]", "amsgrad has no form with states in 8 bits"));
  optim::Lion opt({w});  // the parameter is free: nothing of the failures is left
}

TEST_CASE("set_lr holds from the next step on") {
  Tensor w = parameter({1}, {1}, f64);
  optim::SGD opt({w}, {.lr = 0.1});
  opt.backward(objective(w, {1}));
  CHECK(opt.step().lr() == 0.1);
  CHECK(w.item() == Approx(0.9));
  opt.set_lr(0.25);
  CHECK(opt.lr() == 0.25);
  opt.backward(objective(w, {1}));
  CHECK(opt.step().lr() == 0.25);
  CHECK(w.item() == Approx(0.65));
}

TEST_CASE("LAMB: the ratio is of the whole parameter, however large") {
  const std::int64_t half = 150'000;  // some forty pieces of a device's arena in each half
  Tensor w = cat({ones({half}), full({half}, 3)});
  w.set_requires_grad();
  optim::LAMB opt({w}, {.lr = 0.1, .weight_decay = 0});
  opt.backward(sum(w),
               1);  // the first update is 1 everywhere, and so |w| / |u| = sqrt((1 + 9) / 2)
  opt.step();
  const std::vector<double> got = values_of(w);
  CHECK(got.front() == Approx(1 - 0.1 * std::sqrt(5)).epsilon(1e-6));
  CHECK(got.back() == Approx(3 - 0.1 * std::sqrt(5)).epsilon(1e-6));
}

}  // namespace
}  // namespace firn::testing
