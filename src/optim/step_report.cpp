#include "firn/optim/step_report.h"

#include <ostream>
#include <utility>

#include "base/check.h"
#include "firn/stream.h"
#include "kernels/math/step_state.h"
#include "tensor/impl.h"

namespace firn::optim {

StepReport::StepReport(Tensor state, std::int64_t cycle) : state_(std::move(state)), cycle_(cycle) {
  if (state_.device().is_cpu()) read();  // nothing to wait for
}

void StepReport::read() const {
  math::StepState s;
  copy_bytes(&s, Device::cpu(), state_.impl()->data(), state_.device(), sizeof(s));
  const math::StepOutcome& o = s.last;
  FIRN_CHECK(o.cycle == cycle_, "StepReport", "ask before the next step()",
             "the report of cycle {} was not read before cycle {} ended", cycle_, o.cycle);
  values_ = {o.status == math::StepStatus::applied         ? StepStatus::applied
             : o.status == math::StepStatus::skipped_empty ? StepStatus::skipped_empty
                                                           : StepStatus::skipped_non_finite,
             o.applied,
             o.skipped,
             o.culprit,
             o.weight,
             o.norm,
             o.learning_rate};
  state_ = Tensor();
}

std::string to_string(const StepReport& r) {
  switch (r.status()) {
    case StepStatus::applied:
      return fmt::format("step {} applied: weight {:.6g}, norm {:.6g}, lr {:.6g}",
                         r.applied_steps(), r.weight(), r.norm(), r.lr());
    case StepStatus::skipped_empty:
      return "skipped: the losses' weights add up to 0";
    default:
      break;
  }
  if (r.culprit() < 0) return fmt::format("skipped: the losses' weights add up to {}", r.weight());
  return fmt::format("skipped: the gradient of parameter {} is not finite", r.culprit());
}

std::ostream& operator<<(std::ostream& out, const StepReport& report) {
  return out << to_string(report);
}

}  // namespace firn::optim
