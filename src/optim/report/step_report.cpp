// Reads the outcome of a step from the optimizer's state.
#include "firn/optim/step_report.h"

#include <ostream>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "kernels/math/optim/step_state.h"
#include "tensor/impl.h"

namespace firn::optim {
StepReport::StepReport(Tensor state, std::int64_t cycles, std::int64_t micro_steps,
                       std::shared_ptr<const std::vector<std::string>> names)
    : state_(std::move(state)),
      cycles_(cycles),
      micro_steps_(micro_steps),
      accumulating_(micro_steps >= 0),
      names_(std::move(names)) {
  if (state_.device().is_cpu()) read();  // needs no wait
}

void StepReport::read() const {
  if (runtime::dry_run()) {  // nothing was decided
    values_ = {};
    values_.status = accumulating_ ? StepStatus::accumulating : StepStatus::applied;
    values_.culprit = -1;
    state_ = Tensor();
    return;
  }
  math::StepState s;
  copy_bytes(&s, Device::cpu(), state_.impl()->data(), state_.device(), sizeof(s));
  const math::StepOutcome& o = s.last;
  FIRN_CHECK(o.cycle == cycles_, "StepReport", "ask before the next step()",
             "the report of cycle {} was not read before cycle {} ended", cycles_, o.cycle);
  if (accumulating_) {
    FIRN_CHECK(s.micro_steps == micro_steps_, "StepReport", "ask before the next backward()",
               "the report of micro-step {} was not read before micro-step {}", micro_steps_,
               s.micro_steps);
    values_ = {.status = StepStatus::accumulating,
               .non_finite = NonFinite::none,
               .applied_steps = s.applied,
               .skipped_steps = s.skipped,
               .culprit = -1,
               .micro_steps = s.micro_steps,
               .weight = s.weight_sum,
               .loss = s.weight_sum != 0 ? s.loss_sum / s.weight_sum : 0,
               .norm = 0,
               .lr = s.learning_rate,
               .loss_scale = s.scale};
  } else {
    values_ = {.status = o.status,
               .non_finite = o.non_finite,
               .applied_steps = o.applied,
               .skipped_steps = o.skipped,
               .culprit = o.culprit,
               .micro_steps = o.micro_steps,
               .weight = o.weight,
               .loss = o.loss,
               .norm = o.norm,
               .lr = o.learning_rate,
               .loss_scale = o.loss_scale};
  }
  state_ = Tensor();
}

std::string StepReport::culprit_name() const try {
  const std::int64_t i = culprit();
  if (i < 0) return {};
  return names_ && static_cast<std::size_t>(i) < names_->size()
             ? (*names_)[static_cast<std::size_t>(i)]
             : std::to_string(i);
}
FIRN_OUT_OF_MEMORY("the report of a step")

namespace {

std::string outcome(const StepReport& r) {
  const std::string scale =
      r.loss_scale() == 1 ? "" : fmt::format(", loss scale {:.10g}", r.loss_scale());
  switch (r.status()) {
    case StepStatus::applied:
      return fmt::format("step {} applied: weight {:.6g}, norm {:.6g}, lr {:.6g}{}",
                         r.applied_steps(), r.weight(), r.norm(), r.lr(), scale);
    case StepStatus::accumulating:
      return fmt::format("accumulating: {} micro-steps, weight {:.6g}", r.micro_steps(),
                         r.weight());
    case StepStatus::skipped_empty:
      return fmt::format("skipped: the losses' weights add up to {:.6g}", r.weight());
    case StepStatus::skipped_partner:
      return "skipped: another optimizer's step was skipped";
    case StepStatus::skipped_no_gradients:
      return "skipped: no parameter has received a gradient";
    default:
      break;
  }
  switch (r.non_finite()) {
    case NonFinite::weight:
      return fmt::format("skipped: the losses' weights add up to {}", r.weight());
    case NonFinite::loss:
      return r.culprit() < 0 ? "skipped: the loss is not finite"
                             : fmt::format(
                                   "skipped: the loss is not finite, nor the gradient of "
                                   "parameter {}",
                                   r.culprit_name());
    case NonFinite::learning_rate:
      return fmt::format("skipped: the learning rate {:.6g} is too large for the parameters' type",
                         r.lr());
    default:
      return (r.culprit() < 0 ? "skipped: the averaged gradient is not finite"
                              : fmt::format("skipped: the gradient of parameter {} is not finite",
                                            r.culprit_name())) +
             scale;
  }
}

}  // namespace

std::string to_string(const StepReport& r) try {
  if (r.memory_retries() == 0) return outcome(r);
  return fmt::format("{}; memory ran out {} time{}, micro-batches of {}", outcome(r),
                     r.memory_retries(), r.memory_retries() == 1 ? "" : "s", r.micro_batch());
}
FIRN_OUT_OF_MEMORY("the report of a step")

std::ostream& operator<<(std::ostream& out, const StepReport& report) {
  return out << to_string(report);
}

}  // namespace firn::optim
