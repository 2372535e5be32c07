// Learning-rate schedules: against PyTorch's schedulers (tests/goldens/optim/optim_schedules.py),
// in words, and in an optimizer, where the applied steps count.
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "optim/problem.h"
#include "support/golden.h"
#include "support/source_path.h"

namespace firn::testing {
namespace {

using optim::Schedule;

/// Learning rates of a schedule, or of a plateau with the metrics that it observed.
struct Rates {
  std::string title, name;
  std::map<std::string, double> options;
  std::vector<double> observed, values;

  double get(const char* key) const { return options.at(key); }
  std::int64_t steps(const char* key) const { return static_cast<std::int64_t>(get(key)); }
};

std::vector<Rates> read() {
  std::vector<Rates> out;
  for (const GoldenGroup& group :
       read_golden_groups(source_path("tests/goldens/optim/optim_schedules.safetensors"))) {
    Rates& g = out.emplace_back();
    g.title = group.title;
    std::istringstream words(g.title);
    words >> g.name;
    if (g.name == "schedule") words >> g.name;
    g.options = options_in(g.title);
    g.values = group.items.at("values").values;
    if (g.name == "plateau") g.observed = group.items.at("observed").values;
  }
  return out;
}

Schedule make_schedule(const Rates& g) {
  if (g.name == "step_decay")
    return optim::step_decay(g.get("lr"), g.steps("every"), g.get("factor"));
  if (g.name == "multi_step") return optim::multi_step(g.get("lr"), {3, 10, 25}, g.get("factor"));
  if (g.name == "exponential") return optim::exponential(g.get("lr"), g.get("factor"));
  if (g.name == "linear")
    return optim::linear_schedule(g.get("begin"), g.get("end"), g.steps("steps"));
  if (g.name == "cosine") return optim::cosine(g.get("lr"), g.steps("steps"), g.get("end"));
  if (g.name == "polynomial")
    return optim::polynomial(g.get("lr"), g.steps("steps"), g.get("power"));
  if (g.name == "one_cycle")
    return optim::one_cycle(g.get("max"), g.steps("steps"), g.get("rise"), g.get("start_divisor"),
                            g.get("end_divisor"));
  if (g.name == "cosine_restarts")
    return optim::cosine_restarts(g.get("lr"), g.steps("steps"), g.steps("longer"), g.get("end"));
  if (g.name == "cyclic")
    return optim::cyclic(g.get("base"), g.get("max"), g.steps("half"),
                         {.per_cycle = g.options.contains("per_cycle") ? g.get("per_cycle") : 1,
                          .per_step = g.options.contains("per_step") ? g.get("per_step") : 1});
  REQUIRE(g.name == "warmup_cosine");
  return optim::warmup(g.steps("warmup"), optim::cosine(g.get("lr"), g.steps("steps")));
}

TEST_CASE("every value of a schedule is PyTorch's") {
  int schedules = 0;
  for (const Rates& g : read()) {
    if (g.name == "plateau") continue;
    ++schedules;
    const Schedule s = make_schedule(g);
    std::vector<double> got;
    for (std::size_t i = 0; i < g.values.size(); ++i)
      got.push_back(s.at(static_cast<std::int64_t>(i)));
    // PyTorch goes from value to value, and so adds up some 50 roundings.
    expect_close(g.title, got, g.values, 1e-15 + 1e-14 * largest(g.values));
  }
  CHECK(schedules == 16);
}

TEST_CASE("a plateau lowers the rate when PyTorch's does") {
  int plateaus = 0, lowered = 0;
  for (const Rates& g : read()) {
    if (g.name != "plateau") continue;
    ++plateaus;
    optim::Plateau p({.lr = g.get("lr"),
                      .factor = g.get("factor"),
                      .patience = static_cast<int>(g.get("patience")),
                      .threshold = g.get("threshold"),
                      .min_lr = g.get("min_lr"),
                      .larger_is_better = g.get("larger") != 0});
    std::vector<double> got;
    for (const double v : g.observed) {
      const double before = p.lr();
      const bool said = p.observe(v);
      CHECK(said == (p.lr() < before));
      lowered += said;
      got.push_back(p.lr());
    }
    // PyTorch does not make a change below 1e-8; firn does.
    expect_close(g.title, got, g.values, 1.1e-8);
  }
  CHECK(plateaus == 4);
  CHECK(lowered > 10);
}

TEST_CASE("a plateau works for values below zero, and refuses options outside their range") {
  optim::Plateau p({.lr = 1, .factor = 0.5, .patience = 0, .threshold = 0.1});
  CHECK_FALSE(p.observe(-1));
  CHECK(p.observe(-1.05));  // less than a tenth better
  CHECK_FALSE(p.observe(-1.2));
  CHECK(p.lr() == 0.5);
  using optim::Plateau;
  CHECK(error_of([] { Plateau({.lr = -1}); }).find("lr is -1") != std::string::npos);
  CHECK(error_of([] { Plateau({.factor = 1}); }).find("factor is 1") != std::string::npos);
  CHECK(error_of([] { Plateau({.patience = -1}); }).find("patience is -1") != std::string::npos);
  CHECK(error_of([] { Plateau({.threshold = NAN}); }).find("threshold is nan") !=
        std::string::npos);
  CHECK(error_of([] { Plateau({.min_lr = HUGE_VAL}); }).find("min_lr is inf") != std::string::npos);
}

TEST_CASE("a schedule stays at its end") {
  const std::int64_t late = std::numeric_limits<std::int64_t>::max();
  CHECK(Schedule(0.25).at(late) == 0.25);
  CHECK(optim::linear_schedule(0, 0.3, 7).at(7) == 0.3);
  CHECK(optim::linear_schedule(0, 0.3, 7).at(late) == 0.3);
  CHECK(optim::cosine(0.1, 7, 0.01).at(7) == 0.01);
  CHECK(optim::cosine(0.1, 7, 0.01).at(late) == 0.01);
  CHECK(optim::polynomial(0.1, 7, 2, 0.01).at(late) == 0.01);
  CHECK(optim::one_cycle(1, 10, 0.3, 10, 100).at(9) == 0.01);
  CHECK(optim::one_cycle(1, 10, 0.3, 10, 100).at(late) == 0.01);
  CHECK(optim::one_cycle(1, 10, 0.3, 10, 100).at(2) == 1);
  CHECK(optim::exponential(0.1, 0.5).at(late) == 0);
  CHECK(optim::step_decay(0.1, 3, 0).at(2) == 0.1);
  CHECK(optim::step_decay(0.1, 3, 0).at(3) == 0);
}

TEST_CASE("cosine_restarts and cyclic at their restarts, and late") {
  const Schedule same = optim::cosine_restarts(0.4, 4, 1, 0.2);
  for (const std::int64_t cycle : {0, 1, 100, 1'000'000'000}) {
    CHECK(same.at(4 * cycle) == 0.4);
    CHECK(same.at(4 * cycle + 2) == Approx(0.3));
  }
  const Schedule longer = optim::cosine_restarts(0.4, 3, 2);
  for (std::int64_t begin = 0, length = 3; length < std::int64_t{1} << 45; length *= 2) {
    CHECK(longer.at(begin) == 0.4);
    CHECK(longer.at(begin + length - 1) < longer.at(begin + length / 2));
    begin += length;
  }
  const Schedule late = optim::cosine_restarts(0.4, 1, 1000);
  CHECK(late.at(std::numeric_limits<std::int64_t>::max()) <= 0.4);
  const Schedule waves = optim::cyclic(1, 3, 1);
  for (int i = 0; i < 9; ++i) CHECK(waves.at(i) == (i % 2 == 0 ? 1 : 3));
  const Schedule falling = optim::cyclic(1, 3, 2, {.per_cycle = 0});
  CHECK(falling.at(2) == 3);
  CHECK(falling.at(6) == 1);
  const Schedule after = optim::warmup(2, optim::cosine_restarts(0.4, 4));
  CHECK(after.at(0) == Approx(0.2));
  CHECK(after.at(2) == 0.4);
  CHECK(after.at(6) == 0.4);
}

TEST_CASE("lambda_schedule keeps its tolerance, and is exact for straight functions") {
  const auto error_of_schedule = [](const Schedule& s, auto&& rate, std::int64_t steps) {
    double worst = 0, most = 0;
    for (std::int64_t i = 0; i <= steps; ++i) {
      worst = std::max(worst, std::abs(s.at(i) - rate(i)));
      most = std::max(most, rate(i));
    }
    CHECK(s.at(steps + 12345) == s.at(steps));
    return worst / most;
  };
  const auto noam = [](std::int64_t i) {
    const double t = static_cast<double>(i + 1);
    return 0.04 * std::min(1 / std::sqrt(t), t * std::pow(400, -1.5));
  };
  for (const double tolerance : {1e-2, 1e-3}) {
    const Schedule s = optim::lambda_schedule(noam, 10'000, tolerance);
    const double error = error_of_schedule(s, noam, 10'000);
    CAPTURE(tolerance, error, s.count());
    CHECK(error <= tolerance);
    CHECK(error > tolerance / 100);  // it does not take more pieces than it needs
    CHECK(s.count() >= 3);
  }
  const auto stairs = [](std::int64_t i) { return i < 3 ? 0.5 : i < 10 ? 0.25 : 0.125; };
  const Schedule exact = optim::lambda_schedule(stairs, 40, 0);
  CHECK(exact.count() == 3);
  CHECK(error_of_schedule(exact, stairs, 40) <= 1e-15);
  CHECK(optim::lambda_schedule([](std::int64_t) { return 0.5; }, 1000, 0).count() == 1);
  const auto line = [](std::int64_t i) { return 1 - static_cast<double>(i) / 64; };
  const Schedule straight = optim::lambda_schedule(line, 64, 0);
  CHECK(straight.count() == 1);
  CHECK(straight.at(65) == 0);
}

TEST_CASE("warm-up leads up to any schedule, and its first step moves") {
  const Schedule s = optim::warmup(4, optim::multi_step(0.8, {2, 5}, 0.5));
  const double want[] = {0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2};
  for (int i = 0; i < 11; ++i) CHECK(s.at(i) == Approx(want[i]));
  CHECK(optim::warmup(1, 0.5).at(0) == 0.5);
  CHECK(optim::warmup(3, 0).at(1) == 0);
}

TEST_CASE("a warm-up of 0 steps is the schedule itself") {
  const Schedule then = optim::multi_step(0.8, {2, 5}, 0.5), s = optim::warmup(0, then);
  for (int i = 0; i < 8; ++i) CHECK(s.at(i) == then.at(i));
  CHECK(s.describe() == then.describe());
  CHECK(optim::warmup(0, 1e-3).at(0) == 1e-3);
  CHECK(optim::sequence({{optim::warmup(0, 0.5), 2}, {0.25, 1}}).at(2) == 0.25);
}

TEST_CASE("schedules follow one another, each from its own beginning") {
  const Schedule inner = optim::multi_step(0.4, {2, 6}, 0.5);
  const Schedule s = optim::sequence(
      {{0.1, 2}, {inner, 4}, {optim::linear_schedule(1, 0, 4), 1}});  // inner's third piece is cut
  const double want[] = {0.1, 0.1, 0.4, 0.4, 0.2, 0.2, 1, 0.75, 0.5, 0.25, 0, 0};
  for (int i = 0; i < 12; ++i) CHECK(s.at(i) == want[i]);
  const Schedule nested = optim::sequence({{s, 3}, {s, 1}});
  for (int i = 0; i < 12; ++i) CHECK(nested.at(i) == (i < 3 ? want[i] : want[i - 3]));
}

TEST_CASE("[S30] rates grow with the batch, or with its root") {
  const Schedule s = optim::warmup(3, optim::cosine(0.1, 20, 0.01));
  for (const std::int64_t i : {0, 2, 3, 9, 23, 50}) {
    CHECK(optim::scaled(s, 3).at(i) == Approx(3 * s.at(i)));
    CHECK(optim::scaled_for_batch(s, 16).at(i) == Approx(16 * s.at(i)));
    CHECK(optim::scaled_for_batch(s, 16, optim::BatchScaling::square_root).at(i) ==
          Approx(4 * s.at(i)));
  }
  CHECK(optim::scaled(s, 0).at(5) == 0);
  CHECK(optim::scaled(optim::exponential(0.1, 0.5), 2).at(1) == Approx(0.1));
}

TEST_CASE("a schedule says in words what it does") {
  CHECK(Schedule(0.001).describe() == "0.001");
  CHECK(optim::warmup(200, optim::cosine(0.001, 10000)).describe() ==
        "warm-up 0 to 0.001 over 200 steps, then cosine to 0 over 10000 steps");
  CHECK(optim::cosine(0.1, 50, 0.01).describe() == "cosine from 0.1 to 0.01 over 50 steps");
  CHECK(optim::linear_schedule(0.1, 0.2, 1).describe() == "linear from 0.1 to 0.2 over 1 step");
  CHECK(optim::step_decay(0.1, 30).describe() == "0.1, times 0.1 every 30 steps");
  CHECK(optim::exponential(0.1, 0.9).describe() == "0.1, times 0.9 each step");
  CHECK(optim::polynomial(0.1, 40, 2).describe() ==
        "polynomial of power 2 from 0.1 to 0 over 40 steps");
  CHECK(optim::multi_step(0.1, {3, 10}).describe() ==
        "0.1 for 3 steps, then 0.01 for 7 steps, then 0.001");
  CHECK(optim::one_cycle(0.5, 100).describe() ==
        "cosine from 0.02 to 0.5 over 29 steps, then cosine to 5e-05 over 70 steps");
  CHECK(optim::cosine_restarts(0.1, 50).describe() ==
        "cosine from 0.1 to 0 over 50 steps, restarted each time");
  CHECK(optim::cosine_restarts(0.1, 50, 2).describe() ==
        "cosine from 0.1 to 0 over 50 steps, restarted over 2 times as many each time");
  CHECK(optim::cyclic(0.01, 0.1, 20).describe() == "cycles between 0.01 and 0.1 of 40 steps");
  CHECK(optim::cyclic(0.01, 0.1, 20, {.per_cycle = 0.5}).describe() ==
        "cycles between 0.01 and 0.1 of 40 steps, times 0.5 each cycle");
  CHECK(optim::cyclic(0.01, 0.1, 20, {.per_step = 0.99}).describe() ==
        "cycles between 0.01 and 0.1 of 40 steps, times 0.99 each step");
  CHECK(optim::sequence({{optim::cosine(0.1, 50), 20}, {0.3, 1}}).describe() ==
        "cosine from 0.1 to 0 over 50 steps for 20 steps, then 0.3");
}

TEST_CASE("numbers that make no schedule are refused") {
  const auto refused = [](auto&& make_one, const char* op, const char* what) {
    INFO(op << " " << what);
    const std::string text = error_of(make_one);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  // A constant is refused by whoever is given it.
  refused([] { optim::sequence({{-1, 1}}); }, "[Schedule]", "is -1");
  refused([] { optim::scaled(NAN, 1); }, "[Schedule]", "is nan");
  refused([] { optim::warmup(3, HUGE_VAL); }, "[warmup]", "the rate to reach is inf");
  refused([] { optim::cosine(-1, 5); }, "[cosine]", "hint: give a finite number of 0 or more");
  refused([] { optim::warmup(-1, 1); }, "[warmup]", "hint: steps are counted in applied steps");
  refused([] { optim::step_decay(0.1, 0); }, "[step_decay]", "every is 0");
  refused([] { optim::step_decay(-1, 3); }, "[step_decay]", "lr is -1");
  refused([] { optim::step_decay(1, 3, NAN); }, "[step_decay]", "factor is nan");
  refused([] { optim::multi_step(0.1, {3, 3}); }, "[Schedule]", "step 3");
  refused([] { optim::multi_step(0.1, {0}); }, "[multi_step]", "milestone is 0");
  refused([] { optim::exponential(0.1, -1); }, "[exponential]", "factor is -1");
  refused([] { optim::linear_schedule(0, -1, 3); }, "[linear_schedule]", "to is -1");
  refused([] { optim::linear_schedule(0, 1, 0); }, "[linear_schedule]", "steps is 0");
  refused([] { optim::cosine(0.1, -5); }, "[cosine]", "steps is -5");
  refused([] { optim::cosine(0.1, 5, NAN); }, "[cosine]", "end is nan");
  refused([] { optim::cosine_restarts(0.1, 0); }, "[cosine_restarts]", "steps is 0");
  refused([] { optim::cosine_restarts(0.1, 5, 0); }, "[cosine_restarts]", "longer is 0");
  refused([] { optim::cyclic(-1, 1, 5); }, "[cyclic]", "base is -1");
  refused([] { optim::cyclic(0, 1, 0); }, "[cyclic]", "half is 0");
  refused([] { optim::cyclic(0, 1, 5, {.per_cycle = 0.5, .per_step = 0.9}); }, "[cyclic]",
          "per_cycle and per_step are 0.5 and 0.9");
  refused([] { optim::cyclic(0, 1, 5, {.per_step = NAN}); }, "[cyclic]", "per_step is nan");
  refused([] { optim::cyclic(0, 1, 5, {.per_cycle = 1e200}); }, "[cyclic]", "per_cycle is 1e+200");
  refused([] { optim::lambda_schedule([](std::int64_t) { return 1.0; }, std::int64_t{1} << 40); },
          "[lambda_schedule]", "more than 2^24");
  refused([] { optim::lambda_schedule({}, 5); }, "[lambda_schedule]", "the function is empty");
  refused([] { optim::lambda_schedule([](std::int64_t) { return 1.0; }, 0); }, "[lambda_schedule]",
          "steps is 0");
  refused([] { optim::lambda_schedule([](std::int64_t i) { return 2.0 - double(i); }, 5); },
          "[lambda_schedule]", "the value at step 3 is -1");
  refused(
      [] { optim::lambda_schedule([](std::int64_t i) { return i % 3 == 0 ? 1.0 : 0.5; }, 500); },
      "[lambda_schedule]", "32 straight pieces reach to step");
  refused([] { optim::polynomial(0.1, 5, -1); }, "[polynomial]", "power is -1");
  refused([] { optim::warmup(-1, 1); }, "[warmup]", "steps is -1, less than 0");
  refused([] { optim::one_cycle(1, 2); }, "[one_cycle]", "steps is 2, less than 3");
  refused([] { optim::one_cycle(1, 10, 1); }, "[one_cycle]", "rise is 1");
  refused([] { optim::one_cycle(1, 10, 0.3, 0); }, "[one_cycle]", "start_divisor");
  refused([] { optim::sequence({}); }, "[sequence]", "no parts");
  refused([] { optim::sequence({{1, 0}, {2, 1}}); }, "[sequence]", "length of a part is 0");
  refused([] { optim::scaled(1, -1); }, "[scaled]", "factor is -1");
  refused([] { optim::scaled_for_batch(1, 0); }, "[scaled_for_batch]", "factor is 0");
  // More pieces than fit; a schedule that failed to grow is what it was.
  Schedule s = 1;
  for (int i = 1; i < Schedule::kMaxPieces; ++i) s.append({.begin = i, .from = 1 + i * 1.0});
  refused([&] { s.append({.begin = 1000}); }, "[Schedule]", "at most 32 pieces");
  CHECK(s.count() == Schedule::kMaxPieces);
  CHECK(s.at(1000) == 32);
}

// ---- In an optimizer ----

TEST_CASE("[S01] an optimizer's rate is its schedule's at the applied steps") {
  const Schedule s = optim::warmup(3, optim::cosine(0.5, 6));
  Tensor w = parameter({1}, {1}, f64);
  optim::SGD opt({w}, {.lr = s});
  double expected = 1;
  for (int step = 0; step < 12; ++step) {
    CHECK(opt.lr() == s.at(step));
    // Micro-steps do not count.
    for (int m = 0; m <= step % 3; ++m) opt.backward(objective(w, {1}));
    CHECK(opt.lr() == s.at(step));
    const optim::StepReport report = opt.step();
    CHECK(report.lr() == s.at(step));
    expected -= s.at(step);
    CHECK(w.item() == Approx(expected));
  }
}

TEST_CASE("[S09] a skipped step does not advance the schedule") {
  const Schedule s = optim::linear_schedule(0, 1, 10);
  Tensor w = parameter({1}, {1});
  optim::Adam opt({w}, {.lr = s});
  int applied = 0;
  for (const double gradient : {1.0, HUGE_VAL, std::nan(""), 2.0, -HUGE_VAL, 1.0}) {
    opt.backward(objective(w, {gradient}));
    const optim::StepReport report = opt.step();
    CHECK(report.lr() == s.at(applied));
    applied += std::isfinite(gradient);
    CHECK(report.applied() == std::isfinite(gradient));
    CHECK(opt.lr() == s.at(applied));
  }
  opt.backward(objective(w, {1}), 0);  // an empty cycle
  CHECK(opt.step().skipped());
  CHECK(opt.lr() == s.at(3));
}

TEST_CASE("set_lr replaces the schedule, by a number or by another schedule") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = optim::exponential(1, 0.5)});
  const auto run = [&] {
    opt.backward(objective(w, {0}));
    return opt.step().lr();
  };
  CHECK(run() == 1);
  CHECK(run() == 0.5);
  opt.set_lr(0.3);
  CHECK(opt.lr() == 0.3);
  CHECK(run() == 0.3);
  CHECK(run() == 0.3);
  opt.set_lr(optim::multi_step(1, {5}, 0.1));  // counts from the optimizer's first step
  CHECK(run() == 1);
  CHECK(run() == Approx(0.1));
}

TEST_CASE("[S23] the schedule is part of the state, and restored with it") {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1});
  optim::SGD first({a}, {.lr = optim::exponential(1, 0.5)}), second({b}, {.lr = 0.1});
  for (optim::SGD* opt : {&first, &second}) {
    opt->backward(objective(opt->parameters()[0], {1}));
    REQUIRE(opt->step());
  }
  for (const char* name : {"schedule", "step_state"})
    copy_(state_of(second, name), state_of(first, name));
  CHECK(second.lr() == 0.5);
  second.backward(objective(b, {1}));
  REQUIRE(second.step());
  CHECK(second.lr() == 0.25);
}

TEST_CASE("the peak of one_cycle is the rate of a step, whatever share of the steps it rises") {
  for (std::int64_t steps = 3; steps <= 60; ++steps)
    for (const double rise : {0.01, 0.1, 0.25, 0.3, 1.0 / 3, 0.35, 0.5, 0.9, 0.99}) {
      CAPTURE(steps, rise);
      const optim::Schedule s = optim::one_cycle(0.7, steps, rise);
      int peaks = 0;
      for (std::int64_t t = 0; t < steps; ++t) {
        CHECK(s.at(t) <= 0.7);
        peaks += s.at(t) == 0.7 ? 1 : 0;
      }
      CHECK(peaks == 1);
      CHECK(s.at(0) == Approx(0.7 / 25));
      CHECK(s.at(steps - 1) == Approx(0.7 / 1e4));
    }
}

TEST_CASE("one_cycle is PyTorch's if the steps that it rises for are a whole number") {
  // torch.optim.lr_scheduler.OneCycleLR, anneal_strategy "cos", three_phase False, written out: two
  // phases that end at steps rise * steps - 1 and steps - 1.
  for (const auto& [steps, rise] : {std::pair{10, 0.3}, {20, 0.25}, {100, 0.5}, {40, 0.1}}) {
    const double first_end = rise * steps - 1, max = 0.5;
    const optim::Schedule s = optim::one_cycle(max, steps, rise, 25, 25e4);
    const auto cosine = [](double from, double to, double part) {
      return to + (from - to) / 2 * (1 + std::cos(3.14159265358979323846 * part));
    };
    for (int t = 0; t < steps; ++t) {
      const double expected =
          t <= first_end ? cosine(max / 25, max, t / first_end)
                         : cosine(max, max / 25e4, (t - first_end) / (steps - 1 - first_end));
      CAPTURE(steps, rise, t);
      CHECK(s.at(t) == Approx(expected).epsilon(1e-12).margin(1e-15));
    }
  }
}

}  // namespace
}  // namespace firn::testing
