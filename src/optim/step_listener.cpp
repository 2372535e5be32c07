#include "optim/step_listener.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "optim/impl.h"

namespace firn::optim {

void Optimizer::Impl::note_loss_scale(const StepReport& report) const try {
  const runtime::Span span(runtime::SpanKind::phase, "profile");
  StepReport kept = report;
  // On a device the report cannot be asked once the next step has been made.
  if (!store.device().is_cpu()) kept = report.of(store.step_state().clone());
  runtime::note_counter(runtime::keep_name("loss scale, " + store.op()),
                        [kept] { return kept.loss_scale(); });
} catch (const std::bad_alloc&) {  // the step has been made: a profile must not make it fail
} catch (const OutOfMemory&) {
}

void Optimizer::Impl::tell_listener(const StepReport& report) {
  if (runtime::recording_spans() && policy.scale.scaled && !runtime::dry_run() &&
      !hooks.capturing()) [[unlikely]]
    note_loss_scale(report);
  if (notes.listener && !runtime::dry_run() && !hooks.capturing()) notes.listener(report);
  hooks.at_replay([](Impl& i) {
    if (i.notes.listener) i.notes.listener(i.report_of_cycle());
  });
}

StepListener::StepListener(Optimizer& optimizer, std::function<void(const StepReport&)> heard) {
  OptimizerImpl& impl = OptimizerAccess::impl(optimizer);
  FIRN_CHECK(!impl.notes.listener, impl.store.op(), "one fit() at a time trains an optimizer",
             "another fit() is training with it");
  stop_ = [alive = impl.hooks.handle()] {  // first: this needs memory
    if (const auto owner = alive.lock()) (*owner)->notes.listener = nullptr;
  };
  impl.notes.listener = std::move(heard);
}

StepListener::~StepListener() { stop_(); }

}  // namespace firn::optim
