// Effects on the host of a step that may be captured: a graph repeats them at each replay, and
// throws there if the step is not where it was captured.
#pragma once

#include <utility>

#include "optim/impl.h"

namespace firn::optim {

/// Runs effect(impl), now and at each replay.
template <class Effect>
void on_host(OptimizerImpl& impl, Effect&& effect) {
  impl.hooks.now_and_at_replay(std::forward<Effect>(effect));
}
/// The work that follows depends on place(impl). Each replay throws Error if that is another value
/// than now; if captured work is not run after all, the host's part of the cycle is put back.
void depends_on(OptimizerImpl& impl, bool (*place)(const OptimizerImpl& impl));

/// While alive, a backward pass is under way. note() then notes the gradients that it has added.
class GradientsOfPass {
 public:
  explicit GradientsOfPass(OptimizerImpl& impl);
  void note() const;

 private:
  OptimizerImpl& impl_;
  GradientLedger::Counts before_;
};
/// Tells the device which parameters have a gradient. Returns whether any has one.
bool tell_gradients(OptimizerImpl& impl);
/// Layers that take part in the cycle use what they have collected, as the device has decided.
void end_members(OptimizerImpl& impl);
/// Runs compute(), which overwrites gradients: if it throws, the cycle is dropped.
void overwrite_gradients(OptimizerImpl& impl, const std::function<void()>& compute);

}  // namespace firn::optim
