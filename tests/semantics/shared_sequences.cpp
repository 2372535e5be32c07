// Random cycles of two or three optimizers that share a loss scale, against the rules written out.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "optim/problem.h"
#include "semantics/spoil.h"

namespace firn::testing {
namespace {

using optim::StepStatus;

// Fewer where each takes long, as in sequences.cpp.
int sequences() {
#ifdef __SANITIZE_ADDRESS__
  return default_device().is_cpu() ? 500 : 20;
#else
  return default_device().is_cpu() ? 10'000 : 50;
#endif
}

// The scale that all share, as {.growth_interval = 2, .min = 2, .max = 64, .hysteresis = 2}.
struct SharedScale {
  double scale = 16;
  int clean = 0, tolerance = 2;

  void move(bool overflow, bool applied) {
    if (overflow) {
      clean = 0;
      if (--tolerance <= 0) scale = std::fmax(2, scale / 2);
    } else if (applied && ++clean == 2) {
      clean = 0;
      tolerance = 2;
      scale = std::fmin(64, scale * 2);
    }
  }
};

// What one optimizer has collected in a cycle, and its weight.
struct Collected {
  Tensor w;
  std::unique_ptr<optim::SGD> opt;
  double value = 1, sum = 0, weight = 0;
  bool finite = true;
};

// One sequence of cycles; the number of the cycle in which something differed, or -1.
int first_difference(Rng& rng) {
  const std::int64_t length = 1 + rng.below(3);
  const bool all = rng.below(2) == 0;
  const optim::LossScaler scaler(optim::LossScale::dynamic(
      {.init = 16, .growth_interval = 2, .min = 2, .max = 64, .hysteresis = 2}));
  std::vector<Collected> members;
  for (std::int64_t n = 2 + rng.below(2); n > 0; --n) {
    Collected m;
    m.w = parameter({m.value}, {1}, f64);
    m.opt = std::make_unique<optim::SGD>(
        std::vector<Tensor>{m.w}, optim::SGDOptions{.lr = 0.1},
        optim::StepOptions{.accumulate = length, .scaler = scaler, .max_skips = 0});
    members.push_back(std::move(m));
  }
  const auto step = [&] {
    const auto policy = all ? optim::SkipPolicy::all : optim::SkipPolicy::each;
    return members.size() == 2
               ? step_all({members[0].opt.get(), members[1].opt.get()}, policy)
               : step_all({members[0].opt.get(), members[1].opt.get(), members[2].opt.get()},
                          policy);
  };
  SharedScale model;
  for (int cycle = 0; cycle < 8; ++cycle) {
    for (Collected& m : members) {
      m.sum = m.weight = 0;
      m.finite = true;
    }
    std::vector<optim::StepReport> reports;
    for (std::int64_t micro_step = 0; micro_step < length;) {
      bool any = false;
      for (Collected& m : members) {
        if (rng.below(5) == 0) continue;
        any = true;
        const double gradient = rng.uniform(-1, 1), weight = double(rng.below(3));
        const bool bad = rng.below(8) == 0;
        const Tensor sum = objective(m.w, {gradient});
        m.opt->backward(bad ? spoilt(sum) : sum, weight);
        m.sum += gradient;
        m.weight += weight;
        m.finite = m.finite && !bad;
      }
      reports = step();
      micro_step += any ? 1 : 0;  // without a backward() in any, the call does not count
      for (const optim::StepReport& r : reports)
        if (r.accumulating() != (micro_step < length)) return cycle;
    }

    bool overflow = false, applied = false;
    for (const Collected& m : members) overflow = overflow || (m.weight > 0 && !m.finite);
    for (std::size_t i = 0; i < members.size(); ++i) {
      Collected& m = members[i];
      StepStatus expected = StepStatus::applied;
      if (m.weight == 0) {
        expected = StepStatus::skipped_empty;
      } else if (!m.finite) {
        expected = StepStatus::skipped_non_finite;
      } else if (all && overflow) {
        expected = StepStatus::skipped_partner;
      } else {
        m.value -= 0.1 * m.sum / m.weight;
        applied = true;
      }
      if (reports[i].status() != expected || std::abs(m.w.item() - m.value) > 1e-12) return cycle;
    }
    model.move(overflow, applied);
    if (scaler.scale() != model.scale) return cycle;
  }
  return -1;
}

TEST_CASE("[S16] random cycles of optimizers that share a scale agree with a plain model") {
  int differing = 0;
  const Warnings warnings;  // of calls of step_all() without a backward()
  for (int i = 0, n = sequences(); i < n && differing == 0; ++i) {
    Rng rng(static_cast<std::uint64_t>(i));
    const int cycle = first_difference(rng);
    CAPTURE(i, cycle);
    if (cycle >= 0) FAIL_CHECK("differs from the model");
    differing += cycle >= 0 ? 1 : 0;
  }
  CHECK(differing == 0);
}

}  // namespace
}  // namespace firn::testing
