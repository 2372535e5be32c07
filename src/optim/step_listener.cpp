#include "optim/step_listener.h"

#include <utility>

#include "base/check.h"
#include "firn/kernel_support.h"
#include "optim/impl.h"

namespace firn::optim {

void Optimizer::Impl::tell_listener(const StepReport& report) {
  if (listener && !runtime::dry_run() && !hooks.capturing()) listener(report);
  hooks.at_replay([](Impl& i) {
    if (i.listener) i.listener(i.report_of_cycle());
  });
}

StepListener::StepListener(Optimizer& optimizer, std::function<void(const StepReport&)> heard) {
  OptimizerAccess::Impl& impl = OptimizerAccess::impl(optimizer);
  FIRN_CHECK(!impl.listener, impl.store.op(), "one fit() at a time trains an optimizer",
             "another fit() is training with it");
  impl.listener = std::move(heard);
  stop_ = [alive = impl.hooks.handle()] {
    if (const auto owner = alive.lock()) (*owner)->listener = nullptr;
  };
}

StepListener::~StepListener() { stop_(); }

}  // namespace firn::optim
