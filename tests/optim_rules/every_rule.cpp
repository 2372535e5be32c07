// What every rule has in common: skipped steps, parameters without a gradient, states that are
// copied, memory, threads, rollback and shared loss scales.
#include "optim_rules/every_rule.h"

#include <limits>

#include "firn/runtime/rollback.h"
#include "runtime/memory/fail_allocation.h"
#include "support/device/slow_device.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using optim::LossScale;

std::vector<DType> dtypes_of(const RuleCase& rule) {
  std::vector<DType> out{f16, bf16, f32};
  if (rule.f64) out.push_back(f64);
  return out;
}

// f16 and bf16 parameters with masters, and without.
std::vector<optim::StepOptions> options_for(DType dtype) {
  std::vector<optim::StepOptions> out{
      {.accumulate = {{0, 3}, {2, 2}},
       .clip_norm = 0.5,
       .loss_scale = LossScale::dynamic({.init = 64, .growth_interval = 2}),
       .ema = 0.9}};
  if (dtype == f16 || dtype == bf16)
    out.push_back({.accumulate = 3,
                   .clip_value = 0.01,
                   .loss_scale = LossScale::fixed(64),
                   .stochastic_rounding = true});
  return out;
}

template <class Fn>
void for_every_rule(const Fn& fn) {
  for (const RuleCase& rule : every_rule())
    for (const DType dtype : dtypes_of(rule))
      for (const optim::StepOptions& step : options_for(dtype)) {
        if (on_slow_device() && dtype != f16) continue;
        if (step.stochastic_rounding && !rule.stochastic) continue;
        CAPTURE(rule.name, to_string(dtype), step.stochastic_rounding);
        fn(rule, dtype, step);
      }
}

TEST_CASE("[S09][S43] a skipped step of any rule has never been") {
  for_every_rule([](const RuleCase& rule, DType dtype, optim::StepOptions step) {
    step.loss_scale = LossScale::fixed(64);
    const RuleRun plain(rule, dtype, step), interrupted(rule, dtype, step);
    for (int i = 0; i < 12; i += 3) {
      REQUIRE(plain.run(i, i + 3) == 1);
      REQUIRE(interrupted.run(i, i + 3) == 1);
      const Bits before = interrupted.bits();
      const double lr = interrupted.opt->lr();
      for (int m = 0; m < 3; ++m) {
        interrupted.opt->backward(interrupted.loss(i + m, m == i % 2), 4);
        if (m < 2) interrupted.opt->step();
      }
      REQUIRE(interrupted.opt->step().skipped());
      CHECK(interrupted.bits() == before);
      CHECK(gradients_are_zero(*interrupted.opt));
      CHECK(interrupted.opt->lr() == lr);
    }
    CHECK(plain.bits() == interrupted.bits());
  });
}

TEST_CASE("[S17][S43] a parameter that no gradient has reached keeps every bit under any rule") {
  for_every_rule([](const RuleCase& rule, DType dtype, const optim::StepOptions& step) {
    const RuleRun run(rule, dtype, step);
    run.run(0, 6);
    const auto untouched = [&] {
      Bits out;
      for (const optim::NamedState& s : run.opt->state())
        for (const char* p : {"parameters.0.", "parameters.1."})
          if (s.name.starts_with(p) && !s.name.ends_with(".gradient") && !s.name.ends_with(".ema"))
            out = out + bits_of(s.tensor);
      return out;
    };
    const Bits before = untouched(), all = run.bits();
    for (int m = 0; m < 3; ++m) {
      run.opt->backward(run.loss(7 + 3 * m), 4);  // reaches the second layer
      run.opt->step();
    }
    CHECK(untouched() == before);
    CHECK(run.bits() != all);
  });
}

TEST_CASE("[S23][S28][S43] any rule goes on to the bit from a state that was copied in mid-cycle",
          "[once]") {
  for_every_rule([](const RuleCase& rule, DType dtype, const optim::StepOptions& step) {
    for (const int done : {0, 7, 12}) {
      CAPTURE(done);
      const RuleRun first(rule, dtype, step), second(rule, dtype, step, 99);
      first.run(0, done);
      const auto from = first.opt->state(), to = second.opt->state();
      REQUIRE(from.size() == to.size());
      {
        const NoGrad guard;
        for (std::size_t i = 0; i < from.size(); ++i) {
          REQUIRE(from[i].name == to[i].name);
          REQUIRE(from[i].tensor.dtype() == to[i].tensor.dtype());
          copy_(to[i].tensor, from[i].tensor);
        }
      }
      const int applied = first.run(done, 18);
      CHECK(applied >= 2);
      CHECK(second.run(done, 18) == applied);
      CHECK(first.bits() == second.bits());
      CHECK(to_string(second.opt->flush()) == to_string(first.opt->flush()));
    }
  });
}

TEST_CASE("[S21][S43] no step of any rule allocates") {
  for_every_rule([](const RuleCase& rule, DType dtype, const optim::StepOptions& step) {
    const RuleRun run(rule, dtype, step);
    int applied = 0;
    for (int i = 0; i < 6; ++i) {
      run.opt->backward(run.loss(i), 4);
      const FailAllocation fail(0, true);
      applied += run.opt->step().applied() ? 1 : 0;
    }
    CHECK(applied == 2);
  });
}

TEST_CASE("[S22][S43] a micro-step of any rule can be taken back") {
  for_every_rule([](const RuleCase& rule, DType dtype, const optim::StepOptions& step) {
    const RuleRun plain(rule, dtype, step), repeated(rule, dtype, step);
    plain.run(0, 12);
    repeated.run(0, 7);
    RollbackPoint start;
    repeated.opt->backward(repeated.loss(11), 4);
    repeated.opt->step();
    start.roll_back();
    repeated.run(7, 12);
    CHECK(plain.bits() == repeated.bits());
  });
}

TEST_CASE("[S29][S43] any rule gives the same bits for any number of threads") {
  for_every_rule([](const RuleCase& rule, DType dtype, const optim::StepOptions& step) {
    std::vector<Bits> all;
    for (const int threads : {1, 2, 3}) {
      const Threads scope(threads);
      const RuleRun run(rule, dtype, step);
      run.run(0, 6);
      all.push_back(run.bits());
    }
    CHECK(all[0] == all[1]);
    CHECK(all[0] == all[2]);
  });
}

TEST_CASE("[S43] any rule gives the same bits wherever its states are") {
  const auto elsewhere =
      default_device().is_cpu() ? optim::StateMemory::file : optim::StateMemory::host;
  for_every_rule([&](const RuleCase& rule, DType dtype, optim::StepOptions step) {
    const RuleRun beside(rule, dtype, step);
    step.state_memory = elsewhere;
    const RuleRun away(rule, dtype, step);
    CHECK(beside.run(0, 9) == away.run(0, 9));
    CHECK(beside.bits() == away.bits());
  });
}

TEST_CASE("[S16][S43] optimizers of any rule skip together under a shared loss scale") {
  for (const RuleCase& rule : every_rule()) {
    CAPTURE(rule.name);
    const optim::LossScaler scaler(LossScale::dynamic({.init = 64}));
    const RuleRun a(rule, f16, {.scaler = scaler}), b(rule, f16, {.scaler = scaler}, 5);
    const auto step = [&](int i, bool spoilt) {
      a.opt->backward(a.loss(i, spoilt), 4);
      b.opt->backward(b.loss(i), 4);
      return optim::step_all({a.opt.get(), b.opt.get()});
    };
    for (const auto& report : step(0, false)) CHECK(report.applied());
    const Bits before = a.bits() + b.bits();
    for (const auto& report : step(3, true)) CHECK(report.skipped());
    CHECK(a.bits() + b.bits() == before);
    for (const auto& report : step(6, false)) CHECK(report.applied());
    CHECK(a.bits() + b.bits() != before);
  }
}

TEST_CASE("any rule lowers the loss of a small net") {
  for (const RuleCase& rule : every_rule()) {
    CAPTURE(rule.name);
    const RuleRun run(rule, f32, {});
    const auto error = [&] {
      const NoGrad guard;
      double total = 0;
      for (int i = 0; i < 30; i += 3) total += run.loss(i).item();
      return total;
    };
    const double before = error();
    run.run(0, 30);
    CHECK(error() < 0.85 * before);
  }
}

}  // namespace
}  // namespace firn::testing
