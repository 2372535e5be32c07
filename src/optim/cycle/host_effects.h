// Host effects of a step that may be captured. A graph repeats them at each replay, and throws
// there if the step is not at the place where it was captured.
#pragma once

#include <utility>

#include "optim/impl.h"

namespace firn::optim {

/// Runs effect(impl) now and at each replay.
template <class Effect>
void on_host(OptimizerImpl& impl, Effect&& effect) {
  impl.hooks.now_and_at_replay(std::forward<Effect>(effect));
}
/// Declares that the work that follows depends on place(impl). A replay throws Error if that has
/// another value than now. If captured work is not run after all, the host's part of the cycle is
/// restored.
void depends_on(OptimizerImpl& impl, bool (*place)(const OptimizerImpl& impl));

/// While alive, a backward pass is under way. note() records the gradients that the pass has added.
class GradientsOfPass {
 public:
  explicit GradientsOfPass(OptimizerImpl& impl);
  void note() const;

 private:
  OptimizerImpl& impl_;
  GradientLedger::Counts before_;
};
/// Writes to the device which parameters have a gradient. Returns true if any has one.
bool report_gradients(OptimizerImpl& impl);
/// Lets the layers of the cycle use what they have collected, as the device has decided.
void end_members(OptimizerImpl& impl);
/// Runs compute(), which overwrites gradients. If it throws, drops the cycle.
void overwrite_gradients(OptimizerImpl& impl, const std::function<void()>& compute);

}  // namespace firn::optim
