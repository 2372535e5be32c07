// The optimizer's kernels on a CUDA device beside those of the CPU: the same arenas, gradients and
// options, step after step. Compilers contract different products and sums to one rounding, so
// results may be some units in the last place apart; builds for the simulator compile both without
// contraction, and there they are equal to the bit.
#include <algorithm>
#include <cmath>

#include "firn/runtime/stream.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/policy/scaler.h"
#include "optim/policy/schedule_table.h"
#include "optim/problem.h"
#include "optim/store/param_store.h"

namespace firn::testing {
namespace {

#ifdef FIRN_HAS_CUSIM
constexpr double kUnits = 0, kRoundedUnits = 0, kEightBitUnits = 0;
#else
constexpr double kUnits = 32;
// Another rounding may take a state in 8 bits to the code beside it, a hundredth away.
constexpr double kEightBitUnits = 0x1p20;
// Without masters: a weight that is rounded the other way comes into averages, and by its decay
// into moments.
constexpr double kRoundedUnits = 4096 * kUnits;
#endif

// Of the sizes of parameters: single ones, ends within a quad, more than a chunk of either device.
const std::vector<Shape> kShapes = {{1}, {3, 5}, {64}, {9001}, {2, 2}, {4096}, {7}};

struct Case {
  DType dtype;
  kernels::UpdateRule rule;
  math::StepPolicy policy;
  bool masters = true;
};

math::StepPolicy policy(double clip_norm, double clip_value, double ema) {
  return {clip_norm,
          clip_value,
          ema,
          optim::policy_of(optim::LossScale::dynamic({.init = 1024, .growth_interval = 3})),
          {}};
}

// An optimizer's store whose kernels are called by hand.
class Twin {
 public:
  Twin(const Case& c, Device device)
      : parameters_(make_parameters(c.dtype, device)),
        store_("twin", {{parameters_, c.rule, 0.5}},
               {.masters = c.masters, .average = c.policy.ema > 0, .watched = true, .scaler = {}}),
        policy_(c.policy),
        scaler_(optim::LossScale::dynamic({.init = 1024, .growth_interval = 3}), store_.scaler()),
        sink_(c.dtype == f64 ? f64 : f32) {
    kernels::optim_set_schedule(store_.memory(), optim::table_of(optim::cosine(0.1, 10)),
                                store_.stream());
  }

  // Returns the seed.
  double begin(double loss, double weight, bool first) {
    const Tensor seed = make({-1}, {}, sink_, Layout::contiguous, store_.device());
    const Tensor l = make({loss}, {}, sink_, Layout::contiguous, store_.device());
    const kernels::PendingGradient pending = kernels::pending_gradient(
        store_.memory(), policy_, seed.mutable_view(), l.view(), ConstView{}, weight);
    kernels::optim_begin(pending,
                         first ? std::span<const kernels::OptimizerArena>() : store_.arenas(),
                         store_.stream());
    return seed.item();
  }
  // Gradients of all parameters but those that `skipped` names.
  void gradients(Rng rng, std::size_t skipped, double planted) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::vector<double> values = rng.uniforms(parameters_[i].numel(), -800, 800);
      if (planted != 0 && i >= 2) values.back() = planted;
      if (i == skipped) continue;
      autograd::Leaf& leaf = *autograd::leaf_of(parameters_[i]);
      const Tensor g =
          make(values, parameters_[i].shape(), sink_, Layout::contiguous, store_.device());
      kernels::copy(g.view(), leaf.arena.mutable_view(), store_.stream());
      leaf.touched = 1;
    }
    store_.ledger().note();
    store_.ledger().report_to_device(store_.memory(), store_.stream());
  }
  math::StepState end() {
    const kernels::StepMemory memory = store_.memory();
    kernels::optim_norm(memory, store_.arenas(), policy_, store_.stream());
    kernels::optim_trust_ratios(memory, store_.arenas(), store_.stream());
    kernels::optim_update(memory, store_.arenas(), policy_, true, store_.stream());
    store_.ledger().begin_cycle();
    return store_.read_state();
  }
  std::vector<optim::NamedState> state() {
    std::vector<optim::NamedState> out;
    for (const auto& e : store_.state()) out.push_back({e.name, e.tensor});
    return out;
  }
  math::StepOutcome seen() const { return store_.last_seen(); }

 private:
  static std::vector<Tensor> make_parameters(DType dtype, Device device) {
    Rng rng(7);
    std::vector<Tensor> out;
    for (const Shape& shape : kShapes) {
      out.push_back(
          make(rng.uniforms(shape.product(), -1, 1), shape, dtype, Layout::contiguous, device));
      out.back().set_requires_grad();
    }
    return out;
  }

  std::vector<Tensor> parameters_;
  optim::ParamStore store_;
  math::StepPolicy policy_;
  optim::LossScaler scaler_;
  DType sink_;
};

bool has_device() {
  if (cuda_device_count() > 0) return true;
  WARN("skipped: no CUDA device");
  return false;
}

double unit_of(DType dtype) {
  return dtype == f64 ? 0x1p-52 : dtype == f16 ? 0x1p-10 : dtype == bf16 ? 0x1p-7 : 0x1p-23;
}

void check_same(Twin& on_cpu, Twin& on_device, double units) {
  const std::vector<optim::NamedState> a = on_cpu.state(), b = on_device.state();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name == "step_state" || a[i].name == "schedule" || a[i].name == "loss_scale") continue;
    CAPTURE(a[i].name);
    if (units > 0 && a[i].tensor.dtype() == u8 && a[i].name != "touched") continue;  // codes
    const std::vector<double> x = values_of(a[i].tensor), y = values_of(b[i].tensor);
    double worst = 0;
    for (std::size_t k = 0; k < x.size(); ++k) worst = std::max(worst, std::abs(x[k] - y[k]));
    const double scale = std::max(largest(x), 1.0);  // sums cancel: of the largest, not of each
    CHECK(worst <= units * unit_of(a[i].tensor.dtype()) * scale);
  }
}

void check_same(const math::StepOutcome& a, const math::StepOutcome& b) {
  CHECK(a.cycle == b.cycle);
  CHECK(a.applied == b.applied);
  CHECK(a.skipped == b.skipped);
  CHECK(a.culprit == b.culprit);
  CHECK(a.micro_steps == b.micro_steps);
  CHECK(a.skips_in_row == b.skips_in_row);
  CHECK(a.weight == b.weight);
  CHECK(a.loss == b.loss);
  if (std::isfinite(a.norm)) CHECK(b.norm == Approx(a.norm).epsilon(1e-12));
  CHECK(a.learning_rate == Approx(b.learning_rate).epsilon(1e-14));
  CHECK(a.loss_scale == b.loss_scale);
  CHECK(a.status == b.status);
  CHECK(a.non_finite == b.non_finite);
}

// Six cycles: plain ones, one with a second micro-step of another weight, which expresses the sums
// anew, one with an infinity, one of weight 0, and one that leaves a parameter without a gradient.
void check_training(const Case& c, double units) {
  Twin on_cpu(c, Device::cpu()), on_device(c, Device::cuda());
  for (int cycle = 0; cycle < 6; ++cycle) {
    CAPTURE(cycle);
    const std::size_t skipped = cycle == 4 ? 3 : 99;
    const double planted = cycle == 2 ? HUGE_VAL : 0, weight = cycle == 3 ? 0 : 16;
    double seeds[2][2] = {};
    math::StepState ends[2];
    for (Twin* t : {&on_cpu, &on_device}) {
      const int i = t == &on_device;
      seeds[i][0] = t->begin(5, weight, true);
      t->gradients(Rng(static_cast<std::uint64_t>(cycle) + 1), skipped, planted);
      if (cycle == 1) seeds[i][1] = t->begin(7, 1024, false);
      ends[i] = t->end();
    }
    CHECK(seeds[0][0] == seeds[1][0]);
    CHECK(seeds[0][1] == seeds[1][1]);
    check_same(ends[0].last, ends[1].last);
    CHECK(ends[0].loss_total == ends[1].loss_total);
    check_same(on_cpu, on_device, units);
    synchronize(Device::cuda());
    CHECK(on_device.seen().cycle == cycle + 1);
    CHECK(on_device.seen().status == ends[0].last.status);
  }
}

const std::vector<std::pair<const char*, kernels::UpdateRule>> kRules = {
    {"sgd", math::Sgd{0.01}},
    {"momentum", math::SgdMomentum{0.9, 0.1, 0.01, false}},
    {"adam", math::Adam{0.9, 0.99, 1e-8, 0.01, true}},
    {"rmsprop", math::RmsProp<false, false>{0.9, 1e-8, 0, 0.01}},
    {"rmsprop, momentum", math::RmsProp<false, true>{0.9, 1e-8, 0.9, 0}},
    {"rmsprop, centered", math::RmsProp<true, false>{0.9, 1e-3, 0, 0.01}},
    {"rmsprop, both", math::RmsProp<true, true>{0.9, 1e-3, 0.9, 0.01}},
    {"adagrad", math::Adagrad{0.1, 1e-10, 0.5, 0.01}},
    {"amsgrad", math::AmsGrad{{0.9, 0.99, 1e-8, 0.01, false}}},
    {"nadam", math::NAdam{0.9, 0.99, 1e-8, 0.01, 0.1, false}},
    {"radam", math::RAdam{0.9, 0.99, 1e-8, 0.01, true}},
    {"adadelta", math::Adadelta{0.9, 1e-6, 0.01}},
    {"rprop", math::Rprop{}},
    {"lion", math::Lion{0.9, 0.99, 0.01}},
    {"replace", math::Replace{}},
    {"adam in 8 bits", math::EightBit<math::Adam>{{0.9, 0.99, 1e-8, 0.01, true}}},
    {"lion in 8 bits", math::EightBit<math::Lion>{{0.9, 0.99, 0.01}}},
};

TEST_CASE("every rule updates on a device as on the CPU", "[gpu][once]") {
  if (!has_device()) return;
  for (const auto& [name, rule] : kRules)
    for (const DType dtype : {f16, bf16, f32, f64}) {
      CAPTURE(name, to_string(dtype));
      const bool eight_bit = optim::is_eight_bit(rule);
      if (eight_bit && dtype == f64) continue;
      check_training({dtype, rule, policy(0, 0, 0)}, eight_bit ? kEightBitUnits : kUnits);
    }
}

TEST_CASE("averages, clipping by value and stochastic rounding are the same on a device",
          "[gpu][once]") {
  if (!has_device()) return;
  for (const DType dtype : {f16, bf16, f32, f64}) {
    CAPTURE(to_string(dtype));
    const kernels::UpdateRule adam = math::Adam{0.9, 0.99, 1e-8, 0.01, false};
    check_training({dtype, adam, policy(0, 0, 0.9)}, kUnits);
    check_training({dtype, adam, policy(0, 0.1, 0.9)}, kUnits);
    if (dtype == f16 || dtype == bf16)
      check_training({dtype, adam, policy(0, 0, 0.9), false}, kRoundedUnits);
    if (dtype == f64) continue;
    const kernels::UpdateRule adam8 = math::EightBit<math::Adam>{{0.9, 0.99, 1e-8, 0.01, false}};
    check_training({dtype, adam8, policy(0, 0.1, 0.9)}, kEightBitUnits);
    if (dtype != f32) check_training({dtype, adam8, policy(0, 0, 0.9), false}, kEightBitUnits);
  }
}

// Here sums over many elements come in, whose order is another.
TEST_CASE("clipping by norm and trust ratios are the same on a device to rounding", "[gpu]") {
  if (!has_device()) return;
  for (const DType dtype : {f16, f32, f64}) {
    CAPTURE(to_string(dtype));
    check_training({dtype, math::Adam{0.9, 0.99, 1e-8, 0.01, true}, policy(0.5, 0.2, 0)}, 64);
    check_training({dtype, math::Lamb{0.9, 0.99, 1e-6, 0.01}, policy(0.5, 0, 0.9)}, 64);
  }
}

}  // namespace
}  // namespace firn::testing
