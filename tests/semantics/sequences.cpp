// Random sequences of calls against a plain model of the cycle and of the loss scale: after every
// call both agree.
#include "optim/problem.h"
#include "semantics/cycle_model.h"
#include "semantics/spoil.h"

namespace firn::testing {
namespace {

// Fewer where each takes long: under a sanitizer, and on a device, which the host waits for at
// every call.
int sequences() {
#ifdef __SANITIZE_ADDRESS__
  return default_device().is_cpu() ? 20'000 : 100;
#else
  return default_device().is_cpu() ? 100'000 : 300;
#endif
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

optim::DynamicLossScale random_scaler(Rng& rng) {
  optim::DynamicLossScale o;
  o.min = std::ldexp(1.0, static_cast<int>(rng.below(4)) - 2);
  o.max = o.min * std::ldexp(1.0, static_cast<int>(rng.below(8)));
  while ((o.init = o.min * std::ldexp(1.0, static_cast<int>(rng.below(8)))) > o.max) {
  }
  o.growth_factor = rng.below(3) == 0 ? 4 : 2;
  o.backoff_factor = rng.below(3) == 0 ? 0.125 : 0.5;
  o.growth_interval = 1 + rng.below(4);
  o.hysteresis = static_cast<int>(1 + rng.below(3));
  o.refill = rng.below(2) == 0 ? optim::HysteresisRefill::on_growth
                               : optim::HysteresisRefill::on_clean_step;
  return o;
}

CycleModel::Status status_of(optim::StepStatus s) {
  switch (s) {
    case optim::StepStatus::applied:
      return CycleModel::Status::applied;
    case optim::StepStatus::skipped_empty:
      return CycleModel::Status::skipped_empty;
    case optim::StepStatus::skipped_non_finite:
      return CycleModel::Status::skipped_non_finite;
    default:
      return CycleModel::Status::accumulating;
  }
}

// Of the parameter, and how far it may be from the model's: 16-bit weights are read as rounded.
constexpr std::pair<DType, double> kTypes[] = {
    {f64, 1e-12}, {f32, 1e-5}, {f16, 0.01}, {bf16, 0.05}};

// How often each of the model's statuses came about, and an error for skips in a row.
struct Seen {
  int statuses[4] = {}, errors = 0;
};

// One sequence; what the first disagreement was, or nothing.
std::string disagreement(Rng& rng, Seen& seen) {
  const optim::DynamicLossScale scaler = random_scaler(rng);
  CycleModel::ByEpoch accumulate{{0, 1 + rng.below(4)}};
  if (rng.below(2) == 0) accumulate.emplace_back(1 + rng.below(2), 1 + rng.below(4));
  // On a device the error for skips in a row may come steps later: see [S12].
  const std::int64_t max_skips = rng.below(4) * (default_device().is_cpu() ? 1 : 0);
  CycleModel model(accumulate, scaler, 1.0);
  const auto [dtype, tolerance] = kTypes[rng.below(4)];
  Tensor w = parameter({model.w}, {1}, dtype);
  optim::SGD opt({w}, {.lr = optim::step_decay(0.1, 3, 0.5)},
                 {.accumulate = accumulate,
                  .loss_scale = optim::LossScale::dynamic(scaler),
                  .max_skips = max_skips});
  for (int call = 0; call < 16; ++call) {
    std::string name;
    bool agree = true;
    // Calls `end`, which may end a cycle, and compares what it reports.
    const auto compare = [&](auto&& end, CycleModel::Status status) {
      ++seen.statuses[static_cast<int>(status)];
      const bool error = status == CycleModel::Status::skipped_non_finite && max_skips > 0 &&
                         model.skips_in_row >= max_skips;
      try {
        const optim::StepReport report = end();
        agree = !error && status_of(report.status()) == status &&
                report.applied_steps() == model.applied && report.skipped_steps() == model.skipped;
        if (!report.accumulating()) agree = agree && report.weight() == model.weight;
      } catch (const Error&) {
        ++seen.errors;
        agree = error;
      }
    };
    switch (const std::int64_t kind = rng.below(12); kind) {
      default: {
        const double gradient = rng.uniform(-1, 1);
        const double weight = static_cast<double>(rng.below(4));
        const bool bad = rng.below(6) == 0;
        name = "backward";
        const Tensor sum = firn::sum(cast(gradient * w, compute_dtype(dtype)));
        opt.backward(bad ? spoilt(sum, rng.below(2) == 0 ? kInf : kNaN) : sum, weight);
        model.backward(gradient, weight, !bad);
        if (kind < 2) break;
        name = "backward, step";
        compare([&] { return opt.step(); }, model.step());
        break;
      }
      case 6:
        name = "step";
        compare([&] { return opt.step(); }, model.step());
        break;
      case 7: {
        name = "flush";
        const auto partial = static_cast<optim::Partial>(rng.below(3));
        compare([&] { return opt.flush(partial); }, model.flush(partial));
        break;
      }
      case 8: {
        name = "set_loss_scale";
        const double scale =
            std::min(scaler.max, std::ldexp(scaler.min, static_cast<int>(rng.below(8))));
        opt.set_loss_scale(scale);
        model.set_scale(scale);
        break;
      }
      case 9: {
        name = "set_epoch";
        const std::int64_t epoch = rng.below(4);
        opt.set_epoch(epoch);
        model.set_epoch(epoch);
        break;
      }
      case 10:
        name = "zero_grad";
        opt.zero_grad();
        model.zero_grad();
        break;
    }
    const std::int64_t micro_steps = opt.flush(optim::Partial::carry).micro_steps();
    agree = agree && opt.loss_scale() == model.scale && opt.lr() == Approx(model.lr()) &&
            micro_steps == model.micro_steps && std::abs(w.item() - model.w) <= tolerance;
    if (!agree) {
      std::ostringstream out;
      out << "call " << call << ", " << name << ": scale " << opt.loss_scale() << " (model "
          << model.scale << "), lr " << opt.lr() << " (" << model.lr() << "), micro-steps "
          << micro_steps << " (" << model.micro_steps << "), w " << w.item() << " (" << model.w
          << "), applied " << model.applied << ", skipped " << model.skipped;
      return out.str();
    }
  }
  return {};
}

TEST_CASE(
    "[S01][S03][S05][S09][S13][S24] random sequences of calls agree with a plain model, 100,000 on "
    "the CPU") {
  int failures = 0;
  Seen seen;
  const Warnings warnings;  // of calls of step() without a backward()
  const int n = sequences();
  for (int i = 0; i < n && failures < 3; ++i) {
    Rng rng(static_cast<std::uint64_t>(i));
    const std::string message = disagreement(rng, seen);
    if (!message.empty()) {
      ++failures;
      CAPTURE(i, message);
      CHECK(message.empty());
    }
  }
  CHECK(failures == 0);
  for (const int count : seen.statuses) CHECK(count > n / 10);
  if (default_device().is_cpu()) CHECK(seen.errors > n / 50);
}

}  // namespace
}  // namespace firn::testing
