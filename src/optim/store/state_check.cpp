#include "optim/store/state_check.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/check.h"
#include "optim/policy/schedule_table.h"

namespace firn::optim {
namespace {

constexpr const char* kHint = "copy in all tensors of a state() that an optimizer like this saved";
/// Schedules count steps in f64, which represents all integers up to this one.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
/// The range of loss scales and gradient units that f32 represents.
constexpr double kLeastScale = 0x1p-126, kMostScale = 0x1p127;

/// Returns a text without its zeros, and with '?' for characters that cannot be printed.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != 0) out += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  return out;
}

void require_count(const std::string& op, const char* tensor, const char* name, std::int64_t value,
                   std::int64_t least = 0, std::int64_t most = kMostSteps) {
  FIRN_CHECK(value >= least && value <= most, op, kHint,
             "the state's \"{}\" is damaged: {} is {}, not in [{}, {}]", tensor, name, value, least,
             most);
}

void require_power(const std::string& op, const char* tensor, const char* name, double value,
                   double least = kLeastScale, double most = kMostScale) {
  FIRN_CHECK(math::is_power_of_two(value) && value >= least && value <= most, op, kHint,
             "the state's \"{}\" is damaged: {} is {}, not a power of two in [{}, {}]", tensor,
             name, value, least, most);
}

void require_finite(const std::string& op, const char* name, double value) {
  FIRN_CHECK(math::is_finite(value), op, kHint, "the state's \"step_state\" is damaged: {} is {}",
             name, value);
}

Schedule check_schedule(const std::string& op, const math::ScheduleTable& table, double most) {
  FIRN_CHECK(table.count >= 1 && table.count <= math::kMaxSchedulePieces, op, kHint,
             "the state's \"schedule\" is damaged: it has {} pieces, not 1 to {}", table.count,
             math::kMaxSchedulePieces);
  Schedule out;
  for (std::int64_t i = 0; i < table.count; ++i) {
    const math::SchedulePiece& p = table.pieces[i];
    FIRN_CHECK(p.kind >= math::ScheduleKind::constant &&
                   p.kind <= math::ScheduleKind::triangle_by_step && (i > 0 || p.begin == 0),
               op, kHint,
               "the state's \"schedule\" is damaged: piece {} is of kind {} and begins at {}", i,
               static_cast<std::int64_t>(p.kind), p.begin);
    try {
      out.append(p);
    } catch (const Error& e) {
      FIRN_CHECK(false, op, kHint, "the state's \"schedule\" is damaged: {}", e.what());
    }
    FIRN_CHECK(std::max(p.from, p.to) <= most, op, kHint,
               "the state's \"schedule\" is damaged: piece {} goes from {} to {}, more than {}", i,
               p.from, p.to, most);
  }
  return out;
}

void check_scaler(const std::string& op, const math::ScalerState& s) {
  constexpr const char* kName = "loss_scale";
  require_power(op, kName, "the scale", s.scale);
  require_count(op, kName, "the number of clean steps", s.clean_steps);
  require_count(op, kName, "the tolerance for overflows", s.hysteresis_left);
  require_count(op, kName, "the number of overflows", s.overflows);
  require_count(op, kName, "the flag of a calibration", s.calibrating, 0, 1);
}

/// Checks the sums of the cycle's backward passes. A loss or weight that is not finite is allowed:
/// the step will skip it.
void check_sums(const std::string& op, const math::LossSums& s) {
  constexpr const char* kName = "step_state";
  require_count(op, kName, "the number of micro-steps", s.micro_steps);
  require_power(op, kName, "the unit of the gradients", s.unit);
  require_power(op, kName, "the loss scale", s.scale);
  require_power(op, kName, "the change of unit", s.reexpress, 0x1p-252, 0x1p252);
  for (const double sum : {s.weight_sum, s.loss_sum})
    FIRN_CHECK(s.micro_steps > 0 || sum == 0, op, kHint,
               "the state's \"step_state\" is damaged: the sum of no micro-step is {}", sum);
  require_finite(op, "the total of losses", s.loss_total);
  require_finite(op, "the total of weights", s.weight_total);
}

/// Checks the average of a rule that keeps one. Its sums are in units of the last step's weight.
void check_average(const std::string& op, const math::StepState& s) {
  FIRN_CHECK(s.largest_rate >= 0 && math::is_finite(s.largest_rate), op, kHint,
             "the state's \"step_state\" is damaged: the largest learning rate is {}",
             s.largest_rate);
  const auto steps = static_cast<double>(s.applied);
  FIRN_CHECK(s.average_sum == 0 || (s.average_sum >= 1 && s.average_sum <= steps * (1 + 1e-9)), op,
             kHint, "the state's \"step_state\" is damaged: the average's sum is {} after {} steps",
             s.average_sum, s.applied);
}

/// Checks the report of the last step against the rest of the state.
void check_report(const std::string& op, const math::StepState& s, std::int64_t parameters) {
  constexpr const char* kName = "step_state";
  const math::StepOutcome& last = s.last;
  FIRN_CHECK(last.applied == s.applied && last.skipped == s.skipped &&
                 last.cycle == s.applied + s.skipped && last.skips_in_row == s.skips_in_row,
             op, kHint,
             "the state's \"step_state\" is damaged: its report is of cycle {} with {} applied and "
             "{} skipped steps, {} in a row, and the state has {}, {} and {}",
             last.cycle, last.applied, last.skipped, last.skips_in_row, s.applied, s.skipped,
             s.skips_in_row);
  require_count(op, kName, "the number of micro-steps of the report", last.micro_steps);
  FIRN_CHECK(last.culprit >= -1 && last.culprit < parameters, op, kHint,
             "the state's \"step_state\" is damaged: it blames parameter {} of {}", last.culprit,
             parameters);
  require_power(op, kName, "the report's loss scale", last.loss_scale);
}

void check_step(const std::string& op, const math::StepState& s, std::int64_t parameters) {
  constexpr const char* kName = "step_state";
  require_count(op, kName, "the number of applied steps", s.applied);
  require_count(op, kName, "the number of skipped steps", s.skipped);
  FIRN_CHECK(s.skips_in_row >= 0 && s.skips_in_row <= s.skipped, op, kHint,
             "the state's \"step_state\" is damaged: {} skips in a row, and {} skipped steps",
             s.skips_in_row, s.skipped);
  require_count(op, kName, "the parameter in question", s.culprit, -1, parameters - 1);
  check_sums(op, s);
  check_average(op, s);
  check_report(op, s, parameters);
  for (const StepStatus status : {s.decision, s.last.status})
    FIRN_CHECK(status >= StepStatus::accumulating && status <= StepStatus::skipped_no_gradients, op,
               kHint, "the state's \"step_state\" is damaged: a step's status is {}",
               static_cast<int>(status));
  for (const NonFinite what : {s.non_finite, s.last.non_finite})
    FIRN_CHECK(what >= NonFinite::none && what <= NonFinite::learning_rate, op, kHint,
               "the state's \"step_state\" is damaged: what was not finite is {}",
               static_cast<int>(what));
}

void check_progress(const std::string& op, const Progress& p, const math::StepState& s) {
  constexpr const char* kName = "cycle";
  require_count(op, kName, "the epoch", p.epoch);
  require_count(op, kName, "the length of the cycle", p.length);
  FIRN_CHECK(
      p.calls >= 0 && p.calls <= p.length && p.counted >= 0 && p.counted <= p.micro_steps, op,
      kHint,
      "the state's \"cycle\" is damaged: epoch {}, {} of {} calls of step(), {} of {} micro-steps",
      p.epoch, p.calls, p.length, p.counted, p.micro_steps);
  FIRN_CHECK(p.micro_steps <= 0 || p.length > 0, op, kHint,
             "the state's \"cycle\" is damaged: {} micro-steps in a cycle of length 0",
             p.micro_steps);
  FIRN_CHECK(p.cycles == s.applied + s.skipped && p.micro_steps == s.micro_steps, op, kHint,
             "the state's \"cycle\" and \"step_state\" are not of one state: {} cycles and {} "
             "micro-steps, and {} steps and {} micro-steps",
             p.cycles, p.micro_steps, s.applied + s.skipped, s.micro_steps);
}

/// Checks that the next step's learning rate is the schedule's. A device rounds powers and cosines
/// differently.
void check_rate(const std::string& op, const Schedule& schedule, const math::StepState& s) {
  const double expected = schedule.at(s.applied);
  double size = expected;
  for (int i = 0; i < schedule.count(); ++i)
    size = std::max({size, schedule.pieces()[i].from, schedule.pieces()[i].to});
  FIRN_CHECK(
      s.learning_rate >= 0 &&
          (s.learning_rate == expected || std::abs(s.learning_rate - expected) <= 1e-9 * size ||
           !(expected == expected)),
      op, kHint,
      "the state's \"step_state\" is damaged: the learning rate is {}, and the schedule's {}",
      s.learning_rate, expected);
}

}  // namespace

std::string kind_of_state(const std::string& op) { return op + " state 2"; }

Schedule check_state(const std::string& op, const CopiedState& s) {
  const std::string kind = printable(s.kind);
  FIRN_CHECK(kind == kind_of_state(op), op, kHint,
             "the state that was copied in is \"{}\", and this optimizer's is \"{}\"", kind,
             kind_of_state(op));
  for (std::size_t i = 0; i < s.touched.size(); ++i)
    FIRN_CHECK(s.touched[i] <= 1, op, kHint,
               "the state's \"touched\" is damaged: that of parameter {} is {}", i, s.touched[i]);
  check_scaler(op, s.scaler);
  check_step(op, s.step, static_cast<std::int64_t>(s.update_counts.size()));
  for (std::size_t i = 0; i < s.update_counts.size(); ++i)
    FIRN_CHECK(
        s.update_counts[i] >= 0 && s.update_counts[i] <= s.step.applied, op, kHint,
        "the state's \"update_counts\" is damaged: parameter {} has {} updates in {} applied "
        "steps",
        i, s.update_counts[i], s.step.applied);
  check_progress(op, s.progress, s.step);
  Schedule schedule = check_schedule(op, s.schedule, s.largest_rate);
  check_rate(op, schedule, s.step);
  return schedule;
}

}  // namespace firn::optim
