// States that are not those of an optimizer: another kind's, and values that none can have.
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/math/optim/step_state.h"
#include "optim/problem.h"
#include "optim/state_bytes.h"

namespace firn::testing {
namespace {

using optim::StepStatus;

/// Overwrites item `index` of a tensor that is read as a list of T.
template <class T>
void overwrite_item(const Tensor& t, std::size_t index, T value) {
  overwrite(t, index * sizeof(T), value);
}

void copy_state(const optim::Optimizer& from, const optim::Optimizer& to) {
  const auto source = from.state();
  for (const auto& [name, tensor] : to.state())
    for (const auto& s : source)
      if (s.name == name) copy_(tensor, s.tensor);
}

TEST_CASE("[S23] the state of another kind of optimizer is refused, and a right one mends it") {
  Tensor w = parameter({1, 2}, {2}), v = parameter({1, 2}, {2}), u = parameter({5, 5}, {2});
  optim::Adam adam({w}, {});
  optim::AdamW other({v}, {}), source({u}, {});
  copy_state(adam, other);
  for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
           [&] { other.backward(objective(v, {1})); }, [&] { other.step(); }})
    CHECK(mentions(error_of(call), {"[AdamW]", "\"Adam state 2\"", "\"AdamW state 2\""}));
  copy_state(source, other);
  other.backward(objective(v, {1}));
  CHECK(other.step());
}

TEST_CASE("[S23] values in a state that none can have are refused, by name") {
  struct Damage {
    const char* tensor;
    std::function<void(const Tensor&)> make;
    const char* says;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::size_t kCount = math::kMaxSchedulePieces * sizeof(math::SchedulePiece) / 8;
  const Damage damages[] = {
      {"schedule", [&](const Tensor& t) { overwrite_item<std::int64_t>(t, kCount, 1'000'000'000); },
       "it has 1000000000 pieces"},
      {"schedule", [&](const Tensor& t) { overwrite_item<std::int64_t>(t, kCount, -1); },
       "it has -1 pieces"},
      {"schedule", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 0, 77); }, "of kind 77"},
      {"schedule", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 2, 0); },
       "length of a piece"},
      {"schedule", [&](const Tensor& t) { overwrite_item<double>(t, 3, nan); }, "is nan"},
      {"loss_scale", [](const Tensor& t) { overwrite_item<double>(t, 0, 3.0); }, "the scale is 3"},
      {"loss_scale", [](const Tensor& t) { overwrite_item<double>(t, 0, 0.0); }, "the scale is 0"},
      {"loss_scale", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 1, -4); },
       "clean steps"},
      {"update_counts", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 1, -2); },
       "parameter 1 has -2 updates"},
      {"update_counts",
       [](const Tensor& t) { overwrite_item<std::int64_t>(t, 0, 1'000'000'000'000'000); },
       "parameter 0 has 1000000000000000 updates"},
      {"touched", [](const Tensor& t) { overwrite_item<std::uint8_t>(t, 0, 200); },
       "that of parameter 0 is 200"},
      {"step_state",
       [](const Tensor& t) {
         overwrite_item<std::int64_t>(t, place_of(&math::StepState::applied) / 8, -1);
       },
       "applied steps is -1"},
      {"step_state",
       [](const Tensor& t) {
         overwrite_item<std::int64_t>(
             t, (place_of(&math::StepState::last) + place_of(&math::StepOutcome::culprit)) / 8,
             1'000'000);
       },
       "it blames parameter 1000000 of 2"},
      {"step_state",
       [](const Tensor& t) {
         overwrite_item<double>(t, place_of(&math::LossSums::unit) / 8, -2.0);
       },
       "unit of the gradients is -2"},
      {"step_state",
       [](const Tensor& t) {
         overwrite_item<std::int32_t>(
             t, (place_of(&math::StepState::last) + place_of(&math::StepOutcome::status)) / 4, 6);
       },
       "status is 6"},
      {"step_state",
       [](const Tensor& t) {
         overwrite_item<std::int32_t>(t, place_of(&math::StepState::non_finite) / 4, -1);
       },
       "what was not finite is -1"},
      {"cycle", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 3, 9); }, "9 of 0 calls"},
      {"cycle", [](const Tensor& t) { overwrite_item<std::int64_t>(t, 0, 5); }, "not of one state"},
      {"kind", [](const Tensor& t) { overwrite_item<std::uint8_t>(t, 0, 1); }, "\"?GD state 2\""},
  };
  for (const Damage& damage : damages) {
    CAPTURE(damage.tensor, damage.says);
    Tensor w = parameter({1, 2}, {2}), v = parameter({3}, {1});
    optim::SGD opt({w, v}, {.lr = 0.5}, {.loss_scale = optim::LossScale::dynamic({})});
    damage.make(state_of(opt, damage.tensor));
    for (int i = 0; i < 2; ++i) {  // until it is mended
      CHECK(mentions(error_of([&] { opt.step(); }), {"[SGD]", damage.says}));
      CHECK(mentions(error_of([&] { opt.backward(objective(w, {1})); }), {"[SGD]", damage.says}));
    }
    CHECK(values_of(w) == std::vector<double>{1, 2});
  }
}

TEST_CASE("[S23] what an optimizer tells of itself follows a schedule that was restored") {
  optim::SGD from({parameter({1}, {1})}, {.lr = optim::cosine(0.25, 100)});
  optim::SGD to({parameter({1}, {1})}, {.lr = 0.5});
  copy_state(from, to);
  CHECK(to.flush().accumulating());
  CHECK(optim::describe(to) == optim::describe(from));
}

}  // namespace
}  // namespace firn::testing
