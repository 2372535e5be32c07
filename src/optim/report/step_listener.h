// Hearing of every step of an optimizer, whoever makes it.
#pragma once

#include <functional>

#include "optim/access.h"

namespace firn::optim {

/// While alive, `heard` gets the report of each cycle that the optimizer ends: the tries of
/// OverflowPolicy::retry too, but no dry run. On a CUDA device it gets that of a replayed step as
/// well, before the step has run: read it later. `heard` must not throw or use the optimizer.
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

/// Tells the listener of the cycle that has ended.
void tell_listener(OptimizerImpl& impl, const StepReport& report);

}  // namespace firn::optim
