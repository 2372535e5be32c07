// Learning-rate schedules: how pieces make one, and how a schedule is described. The formulas of
// the pieces are in kernels/math/schedule.h.
#include "firn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "optim/policy/require_option.h"
#include "optim/policy/schedule_table.h"

namespace firn::optim {
namespace {

void require_rate(const char* op, const char* name, double value) {
  FIRN_CHECK(value >= 0 && value < HUGE_VAL, op, "give a finite number of 0 or more",
             "{} is {}, not in [0, inf)", name, value);
}

void require_steps(const char* op, const char* name, std::int64_t value, std::int64_t least = 1) {
  FIRN_CHECK(value >= least, op, "steps are counted in applied steps of the optimizer",
             "{} is {}, less than {}", name, value, least);
}

Schedule of(const Schedule::Piece& first) {
  Schedule out = first.from;
  out.append(first);
  return out;
}

std::string steps_of(std::int64_t n) { return fmt::format("{} step{}", n, n == 1 ? "" : "s"); }

// Returns the rate at which a piece made by warmup() ends; 0 for other pieces. Such a piece is a
// line of n steps whose first value is 1/n of that rate. The piece that begins at the rate follows
// it.
double warmup_target(const Schedule& s, int i) {
  const Schedule::Piece& piece = s.pieces()[i];
  if (piece.kind != Schedule::Kind::linear || i + 1 == s.count()) return 0;
  const Schedule::Piece& next = s.pieces()[i + 1];
  const double target = piece.from * static_cast<double>(piece.length);
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-12 * b; };
  return next.begin == piece.begin + piece.length && near(target, next.from) &&
                 near(target + piece.from, piece.to)
             ? target
             : 0;
}

// Describes one piece. `joined` says that it continues from the value at which the one before it
// ended.
std::string words(const Schedule::Piece& s, bool joined) {
  const auto between = [&](const char* name) {
    return joined ? fmt::format("{} to {:.6g} over {}", name, s.to, steps_of(s.length))
                  : fmt::format("{} from {:.6g} to {:.6g} over {}", name, s.from, s.to,
                                steps_of(s.length));
  };
  switch (s.kind) {
    case Schedule::Kind::linear:
      return between("linear");
    case Schedule::Kind::cosine:
      return between("cosine");
    case Schedule::Kind::exponential:
      return fmt::format("{:.6g}, times {:.6g} each step", s.from, s.factor);
    case Schedule::Kind::polynomial:
      return between(fmt::format("polynomial of power {:.6g}", s.factor).c_str());
    case Schedule::Kind::cosine_restarts:
      return between("cosine") +
             (s.factor > 1
                  ? fmt::format(", restarted over {:.6g} times as many each time", s.factor)
                  : ", restarted each time");
    case Schedule::Kind::triangle:
    case Schedule::Kind::triangle_by_step: {
      const char* each = s.kind == Schedule::Kind::triangle ? "cycle" : "step";
      return fmt::format("cycles between {:.6g} and {:.6g} of {}", s.from, s.to,
                         steps_of(s.length)) +
             (s.factor == 1 ? "" : fmt::format(", times {:.6g} each {}", s.factor, each));
    }
    case Schedule::Kind::steps:
      return fmt::format("{:.6g}, times {:.6g} every {}", s.from, s.factor, steps_of(s.length));
    default:
      return fmt::format("{:.6g}", s.from);
  }
}

// Appends `s` with its step 0 at `begin`, up to `end`. Drops the pieces that begin later.
void append_all(Schedule& out, const Schedule& s, std::int64_t begin, std::int64_t end) {
  for (int i = 0; i < s.count(); ++i) {
    Schedule::Piece piece = s.pieces()[i];
    if (piece.begin >= end - begin) break;
    piece.begin += begin;
    out.append(piece);
  }
}

}  // namespace

// ---- The class ----

Schedule::Schedule(double value) {
  pieces_[0] = {.from = value, .to = value};
  count_ = 1;
}

double Schedule::at(std::int64_t step) const noexcept {
  return math::schedule_at(pieces_.data(), count_, step);
}

void Schedule::append(const Piece& piece) {
  require_steps("Schedule", "the length of a piece", piece.length);
  require_rate("Schedule", "the first value of a piece", piece.from);
  require_rate("Schedule", "the last value of a piece", piece.to);
  require_rate("Schedule", "the factor of a piece", piece.factor);
  if (piece.begin == 0) count_ = 0;  // a new piece at 0 replaces all
  FIRN_CHECK(count_ < kMaxPieces, "Schedule", "give fewer milestones or parts",
             "a schedule has at most {} pieces", kMaxPieces);
  const std::int64_t last = count_ == 0 ? -1 : pieces_[static_cast<std::size_t>(count_ - 1)].begin;
  FIRN_CHECK(piece.begin > last, "Schedule", "give increasing step counts",
             "a piece begins at step {}, and the one before it at step {}", piece.begin, last);
  pieces_[static_cast<std::size_t>(count_++)] = piece;
}

std::string Schedule::describe() const {
  std::string out;
  double reached = -1;  // value at which the previous piece ended
  for (int i = 0; i < count_; ++i) {
    const Piece& s = pieces()[i];
    const bool last = i + 1 == count_;
    const std::int64_t holds = last ? 0 : pieces()[i + 1].begin - s.begin;
    if (i > 0) out += ", then ";
    if (const double target = warmup_target(*this, i); target > 0) {
      out += fmt::format("warm-up 0 to {:.6g} over {}", target, steps_of(s.length));
      reached = target;
      continue;
    }
    out += words(s, std::abs(reached - s.from) <= 1e-12 * s.from);
    // Add the duration, unless the description already states it.
    const bool reported =
        s.kind == Kind::linear || s.kind == Kind::cosine || s.kind == Kind::polynomial;
    if (!last && !(reported && holds == s.length)) out += fmt::format(" for {}", steps_of(holds));
    reached = math::piece_at(s, holds);
  }
  return out;
}

// ---- Single schedules ----

Schedule step_decay(double lr, std::int64_t every, double factor) {
  require_rate("step_decay", "lr", lr);
  require_steps("step_decay", "every", every);
  require_rate("step_decay", "factor", factor);
  return of({.kind = Schedule::Kind::steps, .length = every, .from = lr, .factor = factor});
}

Schedule multi_step(double lr, std::initializer_list<std::int64_t> milestones, double factor) {
  require_rate("multi_step", "lr", lr);
  require_rate("multi_step", "factor", factor);
  Schedule out = lr;
  for (const std::int64_t m : milestones) {
    require_steps("multi_step", "a milestone", m);
    lr *= factor;
    out.append({.begin = m, .from = lr, .to = lr});
  }
  return out;
}

Schedule exponential(double lr, double factor) {
  require_rate("exponential", "lr", lr);
  require_rate("exponential", "factor", factor);
  return of({.kind = Schedule::Kind::exponential, .from = lr, .factor = factor});
}

Schedule linear_schedule(double from, double to, std::int64_t steps) {
  require_rate("linear_schedule", "from", from);
  require_rate("linear_schedule", "to", to);
  require_steps("linear_schedule", "steps", steps);
  return of({.kind = Schedule::Kind::linear, .length = steps, .from = from, .to = to});
}

Schedule cosine(double lr, std::int64_t steps, double end) {
  require_rate("cosine", "lr", lr);
  require_rate("cosine", "end", end);
  require_steps("cosine", "steps", steps);
  return of({.kind = Schedule::Kind::cosine, .length = steps, .from = lr, .to = end});
}

Schedule cosine_restarts(double lr, std::int64_t steps, std::int64_t longer, double end) {
  require_rate("cosine_restarts", "lr", lr);
  require_rate("cosine_restarts", "end", end);
  require_steps("cosine_restarts", "steps", steps);
  require_steps("cosine_restarts", "longer", longer);
  return of({.kind = Schedule::Kind::cosine_restarts,
             .length = steps,
             .from = lr,
             .to = end,
             .factor = static_cast<double>(longer)});
}

Schedule cyclic(double base, double max, std::int64_t half, const CyclicOptions& options) {
  require_rate("cyclic", "base", base);
  require_rate("cyclic", "max", max);
  require_steps("cyclic", "half", half);
  FIRN_CHECK(half <= std::numeric_limits<std::int64_t>::max() / 2, "cyclic",
             "give fewer steps, 2^62 at most", "half is {}", half);
  for (const auto& [name, factor] :
       {std::pair{"per_cycle", options.per_cycle}, std::pair{"per_step", options.per_step}})
    FIRN_CHECK(factor >= 0 && factor <= 1, "cyclic", "1 leaves the height of cycles as it is",
               "{} is {}, not in [0, 1]", name, factor);
  FIRN_CHECK(options.per_cycle == 1 || options.per_step == 1, "cyclic", "leave one of them at 1",
             "per_cycle and per_step are {} and {}", options.per_cycle, options.per_step);
  const bool by_step = options.per_step != 1;
  return of({.kind = by_step ? Schedule::Kind::triangle_by_step : Schedule::Kind::triangle,
             .length = 2 * half,
             .from = base,
             .to = max,
             .factor = by_step ? options.per_step : options.per_cycle});
}

Schedule lambda_schedule(const std::function<double(std::int64_t)>& rate, std::int64_t steps,
                         double tolerance) {
  constexpr const char* kOp = "lambda_schedule";
  require_function(kOp, rate, "give a function of the step");
  require_steps(kOp, "steps", steps);
  FIRN_CHECK(steps <= std::int64_t{1} << 24, kOp, "call set_lr() before each step",
             "steps is {}, more than 2^24", steps);
  require_rate(kOp, "tolerance", tolerance);
  std::vector<double> values;
  for (std::int64_t i = 0; i <= steps; ++i) {
    values.push_back(rate(i));
    require_rate(kOp, fmt::format("the value at step {}", i).c_str(), values.back());
  }
  // A straight line has rounding errors.
  const double most = *std::max_element(values.begin(), values.end());
  const double error = std::max(tolerance, 1e-15) * most;
  for (double& value : values)
    if (value <= error && value < least_number(f32)) value = 0;
  const auto at = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  const auto piece = [&](std::int64_t first, std::int64_t last) -> Schedule::Piece {
    return {.kind = first == last ? Schedule::Kind::constant : Schedule::Kind::linear,
            .begin = first,
            .length = std::max<std::int64_t>(last - first, 1),
            .from = at(first),
            .to = at(last)};
  };
  const auto fits = [&](std::int64_t first, std::int64_t last) {
    const Schedule::Piece p = piece(first, last);
    for (std::int64_t i = first; i <= last; ++i)
      if (!(std::abs(math::piece_at(p, i - first) - at(i)) <= error)) return false;
    return true;
  };
  Schedule out;
  int count = 0;
  for (std::int64_t first = 0; first <= steps; ++count) {
    FIRN_CHECK(count < Schedule::kMaxPieces, kOp,
               "allow a larger tolerance, or call set_lr() before each step",
               "{} straight pieces reach to step {} of {} with a tolerance of {}", count, first,
               steps, tolerance);
    // Find the longest piece that fits, by doubling and halving.
    std::int64_t last = first, reach = 1;
    while (last < steps && fits(first, std::min(last + reach, steps))) {
      last = std::min(last + reach, steps);
      reach *= 2;
    }
    for (; reach > 0; reach /= 2)
      if (last + reach <= steps && fits(first, last + reach)) last += reach;
    out.append(piece(first, last));
    first = last + 1;
  }
  return out;
}

Schedule polynomial(double lr, std::int64_t steps, double power, double end) {
  require_rate("polynomial", "lr", lr);
  require_rate("polynomial", "end", end);
  require_rate("polynomial", "power", power);
  require_steps("polynomial", "steps", steps);
  return of({.kind = Schedule::Kind::polynomial,
             .length = steps,
             .from = lr,
             .to = end,
             .factor = power});
}

// ---- Combined schedules ----

Schedule warmup(std::int64_t steps, const Schedule& then) {
  require_steps("warmup", "steps", steps, 0);
  require_rate("warmup", "the rate to reach", then.at(0));
  if (steps == 0) return then;
  const double target = then.at(0), n = static_cast<double>(steps);
  Schedule out = of({.kind = Schedule::Kind::linear,
                     .length = steps,
                     .from = target / n,
                     .to = target * ((n + 1) / n)});
  append_all(out, then, steps, std::numeric_limits<std::int64_t>::max());
  return out;
}

Schedule one_cycle(double max, std::int64_t steps, double rise, double start_divisor,
                   double end_divisor) {
  require_rate("one_cycle", "max", max);
  require_steps("one_cycle", "steps", steps, 3);
  FIRN_CHECK(rise > 0 && rise < 1, "one_cycle", "0.3 is usual", "rise is {}, not in (0, 1)", rise);
  FIRN_CHECK(
      start_divisor >= 1 && start_divisor < HUGE_VAL && end_divisor >= 1 && end_divisor < HUGE_VAL,
      "one_cycle", "25 and 1e4 are usual",
      "start_divisor and end_divisor are {} and {}, not in [1, inf)", start_divisor, end_divisor);
  const auto share = static_cast<std::int64_t>(std::llround(rise * static_cast<double>(steps)));
  const std::int64_t peak = std::clamp<std::int64_t>(share - 1, 1, steps - 2);
  Schedule out =
      of({.kind = Schedule::Kind::cosine, .length = peak, .from = max / start_divisor, .to = max});
  out.append({.kind = Schedule::Kind::cosine,
              .begin = peak,
              .length = steps - 1 - peak,
              .from = max,
              .to = max / end_divisor});
  return out;
}

Schedule sequence(std::initializer_list<std::pair<Schedule, std::int64_t>> parts) {
  FIRN_CHECK(parts.size() > 0, "sequence", "give {schedule, steps} pairs", "there are no parts");
  constexpr auto kForever = std::numeric_limits<std::int64_t>::max();
  Schedule out;
  std::int64_t begin = 0;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    const bool last = part + 1 == parts.end();
    if (!last) {
      require_steps("sequence", "the length of a part", part->second);
      FIRN_CHECK(part->second < kForever - begin, "sequence", "give fewer steps",
                 "the parts are too long");
    }
    const std::int64_t end = last ? kForever : begin + part->second;
    append_all(out, part->first, begin, end);
    begin = end;
  }
  return out;
}

Schedule scaled(const Schedule& s, double factor) {
  require_rate("scaled", "factor", factor);
  Schedule out;
  for (int i = 0; i < s.count(); ++i) {
    Schedule::Piece piece = s.pieces()[i];
    piece.from *= factor;
    piece.to *= factor;
    out.append(piece);
  }
  return out;
}

Schedule scaled_for_batch(const Schedule& s, double factor, BatchScaling rule) {
  FIRN_CHECK(factor > 0 && factor < HUGE_VAL, "scaled_for_batch",
             "give new batch size / old batch size", "factor is {}, not a positive number", factor);
  require_named("scaled_for_batch", "BatchScaling", rule, BatchScaling::square_root);
  return scaled(s, rule == BatchScaling::linear ? factor : std::sqrt(factor));
}

// ---- Plateau ----

Plateau::Plateau(const Options& options)
    : options_(options), lr_(options.lr), best_(options.larger_is_better ? -HUGE_VAL : HUGE_VAL) {
  require_rate("Plateau", "lr", options.lr);
  require_rate("Plateau", "min_lr", options.min_lr);
  require_rate("Plateau", "threshold", options.threshold);
  FIRN_CHECK(options.factor > 0 && options.factor < 1, "Plateau", "0.1 is usual",
             "factor is {}, not in (0, 1)", options.factor);
  FIRN_CHECK(options.patience >= 0, "Plateau", "10 is usual", "patience is {}, less than 0",
             options.patience);
}

bool Plateau::observe(double value) {
  if (runtime::planning()) return false;  // the value means nothing, and a plan changes nothing
  // The margin is relative to the magnitude, so that negative values work too. The first value
  // always counts as better.
  const double margin = std::isinf(best_) ? 0 : options_.threshold * std::abs(best_);
  const bool better = options_.larger_is_better ? value > best_ + margin : value < best_ - margin;
  if (better) {
    best_ = value;
    bad_ = 0;
    return false;
  }
  if (++bad_ <= options_.patience) return false;
  bad_ = 0;
  double lower = std::max(lr_ * options_.factor, options_.min_lr);
  if (lower < least_number(f32) && lower > options_.min_lr) lower = options_.min_lr;
  if (!(lower < lr_)) return false;
  lr_ = lower;
  return true;
}

}  // namespace firn::optim
