// Scopes that were opened before a plan and end within it.
#pragma once

#include <memory>
#include <utility>

namespace firn::runtime {

/// The end of such a scope. The plan does it once the step is over: kernels do nothing in a plan,
/// and its changes on the host are undone.
class AfterPlan {
 public:
  virtual ~AfterPlan() = default;
  virtual void after_plan() noexcept = 0;

  /// The end that follows in the list of the plan.
  std::shared_ptr<AfterPlan> next;
};

/// Has `end` called after the plan that this thread makes, in the order of such calls. Allocates
/// nothing, so that destructors can call it. Returns false outside of plans, and does nothing then.
bool at_end_of_plan(std::shared_ptr<AfterPlan> end) noexcept;

}  // namespace firn::runtime
