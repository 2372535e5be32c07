// A listener for every step of an optimizer, by any call that makes one.
#pragma once

#include <functional>

#include "optim/access.h"

namespace firn::optim {

/// While alive, `heard` receives the report of each cycle that the optimizer ends. That includes
/// the tries of OverflowPolicy::retry, but no dry run. On a CUDA device it also receives the
/// report of a replayed step, before the step has run: read it later. `heard` must not throw or use
/// the optimizer.
class StepListener {
 public:
  /// Throws Error if the optimizer has a listener.
  StepListener(Optimizer& optimizer, std::function<void(const StepReport&)> heard);
  ~StepListener();
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;

 private:
  std::function<void()> stop_;
};

/// Passes the report of the cycle that has ended to the listener.
void notify_listener(OptimizerImpl& impl, const StepReport& report);

}  // namespace firn::optim
