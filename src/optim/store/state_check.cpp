#include "optim/store/state_check.h"

#include <cctype>
#include <cmath>

#include "base/check.h"
#include "optim/policy/schedule_table.h"

namespace firn::optim {
namespace {

constexpr const char* kHint = "copy in all tensors of a state() that an optimizer like this saved";

/// What stands in a text that may be anything.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != 0) out += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  return out;
}

void require_count(const std::string& op, const char* tensor, const char* name, std::int64_t value,
                   std::int64_t least = 0) {
  FIRN_CHECK(value >= least, op, kHint, "the state's \"{}\" is damaged: {} is {}", tensor, name,
             value);
}

void require_power(const std::string& op, const char* tensor, const char* name, double value) {
  FIRN_CHECK(math::is_power_of_two(value), op, kHint,
             "the state's \"{}\" is damaged: {} is {}, not a power of two", tensor, name, value);
}

Schedule check_schedule(const std::string& op, const math::ScheduleTable& table) {
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
  }
  return out;
}

void check_step(const std::string& op, const math::StepState& s, std::int64_t parameters) {
  constexpr const char* kName = "step_state";
  require_count(op, kName, "the number of applied steps", s.applied);
  require_count(op, kName, "the number of skipped steps", s.skipped);
  require_count(op, kName, "the number of skips in a row", s.skips_in_row);
  require_count(op, kName, "the number of micro-steps", s.micro_steps);
  require_count(op, kName, "the parameter to blame", s.last.culprit, -1);
  require_power(op, kName, "the unit of the gradients", s.unit);
  require_power(op, kName, "the loss scale", s.scale);
  require_power(op, kName, "the change of unit", s.reexpress);
  FIRN_CHECK(s.last.culprit < parameters && s.learning_rate >= 0, op, kHint,
             "the state's \"step_state\" is damaged: it blames parameter {} of {}, with learning "
             "rate {}",
             s.last.culprit, parameters, s.learning_rate);
  for (const StepStatus status : {s.decision, s.last.status})
    FIRN_CHECK(status >= StepStatus::accumulating && status <= StepStatus::skipped_no_gradients, op,
               kHint, "the state's \"step_state\" is damaged: a step's status is {}",
               static_cast<int>(status));
  for (const NonFinite what : {s.non_finite, s.last.non_finite})
    FIRN_CHECK(what >= NonFinite::none && what <= NonFinite::learning_rate, op, kHint,
               "the state's \"step_state\" is damaged: what was not finite is {}",
               static_cast<int>(what));
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
  require_power(op, "loss_scale", "the scale", s.scaler.scale);
  require_count(op, "loss_scale", "the number of clean steps", s.scaler.clean_steps);
  require_count(op, "loss_scale", "the tolerance for overflows", s.scaler.hysteresis_left);
  check_step(op, s.step, static_cast<std::int64_t>(s.update_counts.size()));
  for (std::size_t i = 0; i < s.update_counts.size(); ++i)
    FIRN_CHECK(
        s.update_counts[i] >= 0 && s.update_counts[i] <= s.step.applied, op, kHint,
        "the state's \"update_counts\" is damaged: parameter {} has {} updates in {} applied "
        "steps",
        i, s.update_counts[i], s.step.applied);
  const Progress& p = s.progress;
  FIRN_CHECK(p.epoch >= 0 && p.length >= 0 && p.calls >= 0 && p.calls <= p.length &&
                 p.counted >= 0 && p.counted <= p.micro_steps,
             op, kHint,
             "the state's \"cycle\" is damaged: epoch {}, {} of {} calls of step(), {} of {} "
             "micro-steps",
             p.epoch, p.calls, p.length, p.counted, p.micro_steps);
  FIRN_CHECK(p.cycles == s.step.applied + s.step.skipped && p.micro_steps == s.step.micro_steps, op,
             kHint,
             "the state's \"cycle\" and \"step_state\" are not of one state: {} cycles and {} "
             "micro-steps, and {} steps and {} micro-steps",
             p.cycles, p.micro_steps, s.step.applied + s.step.skipped, s.step.micro_steps);
  return check_schedule(op, s.schedule);
}

}  // namespace firn::optim
