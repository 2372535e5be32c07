// Bytes that no optimizer has in its state: the next call names the tensor and the value, and takes
// over nothing.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "data/files.h"
#include "kernels/math/optim/step_state.h"
#include "optim/problem.h"
#include "optim/state_bytes.h"

namespace firn::testing {
namespace {

using math::StepOutcome;
using math::StepState;

template <class M>
std::size_t place_in_report(M StepOutcome::*member) {
  return place_of(&StepState::last) + place_of(member);
}

struct Damage {
  const char* tensor;
  std::function<void(const Tensor&)> make;
  const char* says;
};

/// Of the state or of its base, at offset 0.
template <class S, class M, class Value>
Damage of_step(M S::*member, Value value, const char* says) {
  return {"step_state",
          [=](const Tensor& t) { overwrite(t, place_of(member), static_cast<M>(value)); }, says};
}
template <class M, class Value>
Damage of_scale(M math::ScalerState::*member, Value value, const char* says) {
  return {"loss_scale",
          [=](const Tensor& t) { overwrite(t, place_of(member), static_cast<M>(value)); }, says};
}
template <class Value>
Damage of_report(Value StepOutcome::*member, Value value, const char* says) {
  return {"step_state", [=](const Tensor& t) { overwrite(t, place_in_report(member), value); },
          says};
}
Damage of_cycle(std::size_t number, std::int64_t value, const char* says) {
  return {"cycle", [=](const Tensor& t) { overwrite(t, 8 * number, value); }, says};
}
Damage of_schedule(std::size_t number, double value, const char* says) {
  return {"schedule", [=](const Tensor& t) { overwrite(t, 8 * number, value); }, says};
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::vector<Damage> damages() {
  return {of_scale(&math::ScalerState::scale, 0x1p200, "the scale is 1.6"),
          of_scale(&math::ScalerState::scale, 0x1p-200, "the scale is 6.2"),
          of_scale(&math::ScalerState::scale, kNan, "the scale is nan"),
          of_scale(&math::ScalerState::clean_steps, kHuge, "the number of clean steps is 9223"),
          of_scale(&math::ScalerState::hysteresis_left, kHuge, "tolerance for overflows is 9223"),
          of_scale(&math::ScalerState::overflows, -1, "the number of overflows is -1"),
          of_scale(&math::ScalerState::calibrating, 7, "the flag of a calibration is 7"),
          of_step(&StepState::weight_sum, 2.0, "of no micro-step is 2"),
          of_step(&StepState::weight_sum, kNan, "of no micro-step is nan"),
          of_step(&StepState::loss_sum, 2.0, "of no micro-step is 2"),
          of_step(&StepState::unit, 0x1p200, "the unit of the gradients is 1.6"),
          of_step(&StepState::scale, 0x1p200, "the loss scale is 1.6"),
          of_step(&StepState::loss_total, kNan, "the total of losses is nan"),
          of_step(&StepState::weight_total, kInf, "the total of weights is inf"),
          of_step(&StepState::culprit, -7, "the parameter in question is -7"),
          of_step(&StepState::learning_rate, 7.0, "learning rate is 7, and the schedule's 0.5"),
          of_step(&StepState::learning_rate, kInf, "learning rate is inf, and"),
          of_step(&StepState::skips_in_row, 5, "5 skips in a row, and 0 skipped"),
          of_step(&StepState::largest_rate, kNan, "the largest learning rate is nan"),
          of_step(&StepState::average_sum, kNan, "the average's sum is nan"),
          of_step(&StepState::average_sum, -1.0, "the average's sum is -1"),
          of_step(&StepState::average_sum, 1e9, "the average's sum is 1000000000"),
          of_report(&StepOutcome::cycle, std::int64_t{9}, "report is of cycle 9"),
          of_report(&StepOutcome::applied, kHuge, "report is of cycle"),
          of_report(&StepOutcome::micro_steps, std::int64_t{-1}, "micro-steps of the report is -1"),
          of_report(&StepOutcome::loss_scale, kNan, "the report's loss scale is nan"),
          of_cycle(1, kHuge, "epoch is 9223"),
          of_cycle(2, kHuge, "length of the cycle is 9223"),
          of_cycle(4, 1, "1 micro-steps in a cycle of length 0"),
          of_schedule(3, 1e300, "from 1e+300 to 0.5, more than"),
          of_schedule(3, -0.5, "is -0.5")};
}

}  // namespace

TEST_CASE("[S23] garbage in a state is refused by its name, and nothing is taken over") {
  for (const Damage& damage : damages()) {
    CAPTURE(damage.tensor, damage.says);
    Tensor w = parameter({1, 2}, {2});
    optim::SGD opt({w}, {.lr = 0.5}, {.loss_scale = optim::LossScale::dynamic({})});
    opt.backward(objective(w, {1}));
    REQUIRE(opt.step());
    const Tensor part = state_of(opt, damage.tensor);
    const Tensor whole = part.clone();
    const std::string described = optim::describe(opt);
    const Bits before = bits_of(w);
    damage.make(part);
    const std::string named = std::string("the state's \"") + damage.tensor + "\"";
    for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
             [&] { opt.step(); }, [&] { opt.backward(objective(w, {1})); }, [&] { opt.flush(); }})
      CHECK(mentions(error_of(call), {"[SGD]", named.c_str(), damage.says, "; hint: copy in"}));
    CHECK(bits_of(w) == before);
    const test::TempFolder folder;
    CHECK(mentions(error_of([&] { io::save_run(folder.file("run"), {opt}); }),
                   {"[save_run]", named.c_str(), damage.says}));
    copy_(part, whole);  // mended
    CHECK(optim::describe(opt) == described);
    opt.backward(objective(w, {1}));
    CHECK(opt.step().applied_steps() == 2);
  }
}

TEST_CASE("[S23] any bytes in a state are an error or a training that goes on") {
  Rng rng(5);
  for (int i = 0; i < 400; ++i) {
    Tensor w = parameter({1, 2}, {2});
    optim::ScheduleFreeAdamW opt({w}, {.lr = optim::cosine(0.5, 10)},
                                 {.loss_scale = optim::LossScale::dynamic({})});
    const char* const names[] = {"schedule", "loss_scale", "step_state", "cycle"};
    const Tensor part = state_of(opt, names[i % 4]);
    const auto byte =
        static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(part.bytes() / 8))) * 8;
    const double number = rng.uniforms(1, -1e9, 1e9)[0];
    std::int64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    overwrite(part, byte, rng.below(2) == 0 ? bits : static_cast<std::int64_t>(number));
    CAPTURE(names[i % 4], byte, bits, number);
    try {
      for (int step = 0; step < 3; ++step) {
        opt.backward(objective(w, {1}));
        opt.step();
      }
    } catch (const Error& e) {
      CHECK(mentions(e.what(), {"[ScheduleFreeAdamW]", "the state's \"", "; hint: "}));
      continue;
    }
    for (const double v : values_of(w)) CHECK(std::isfinite(v));
  }
}

}  // namespace firn::testing
