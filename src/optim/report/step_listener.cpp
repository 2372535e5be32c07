#include "optim/report/step_listener.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "optim/impl.h"

namespace firn::optim {

namespace {

/// Records the loss scale of the step in a profile.
void note_loss_scale(const OptimizerImpl& impl, const StepReport& report) try {
  const runtime::Span span(runtime::SpanKind::phase, "profile");
  StepReport kept = report;
  // On a device the next step overwrites the state that the report reads.
  if (!impl.store.device().is_cpu()) kept = report.of(impl.store.step_state().clone());
  runtime::note_counter(runtime::keep_name("loss scale, " + impl.store.op()),
                        [kept] { return kept.loss_scale(); });
} catch (const std::bad_alloc&) {  // the step is made, and a profile must not make it fail
} catch (const OutOfMemory&) {
}

}  // namespace

void notify_listener(OptimizerImpl& impl, const StepReport& report) {
  if (runtime::recording_spans() && impl.policy.scale.scaled && !runtime::dry_run() &&
      !impl.hooks.capturing()) [[unlikely]]
    note_loss_scale(impl, report);
  if (impl.notes.listener && !runtime::dry_run() && !impl.hooks.capturing())
    impl.notes.listener(report);
  impl.hooks.at_replay([](OptimizerImpl& i) {
    if (i.notes.listener) i.notes.listener(i.report_of_cycle());
  });
}

StepListener::StepListener(Optimizer& optimizer, std::function<void(const StepReport&)> heard) {
  OptimizerImpl& impl = OptimizerAccess::impl(optimizer);
  FIRN_CHECK(!impl.notes.listener, impl.store.op(), "one fit() at a time trains an optimizer",
             "another fit() is training with it");
  stop_ = [alive = impl.hooks.handle()] {  // comes first, because it allocates
    if (const auto owner = alive.lock()) (*owner)->notes.listener = nullptr;
  };
  impl.notes.listener = std::move(heard);
}

StepListener::~StepListener() { stop_(); }

}  // namespace firn::optim
