// Scopes that mark the time in which an optimizer computes a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "firn/ops/losses.h"
#include "optim/impl.h"
#include "optim/saved_state.h"

namespace firn::optim {

/// While alive, `call` makes a whole cycle and runs the user's function. That function must neither
/// make such calls itself nor write into the optimizer's state: adopt_state() refuses it then. Nor
/// must it destroy the optimizer, or roll back a point that was made before the call.
class MakerScope {
 public:
  MakerScope(OptimizerImpl& impl, const char* call) : impl_(impl), running_(impl, call) {
    if (!runtime::dry_run()) adopt_state(impl);
    about_to_change_cycle(impl);  // all points that are older than the call know the cycle then
    outer_ = std::exchange(impl.call.maker, call);
  }
  ~MakerScope() { impl_.call.maker = outer_; }
  MakerScope(const MakerScope&) = delete;
  MakerScope& operator=(const MakerScope&) = delete;

 private:
  OptimizerImpl& impl_;
  const OptimizerImpl::RunningCall running_;
  const char* outer_ = nullptr;
};

/// While alive, rules compute the update of a step. A function that is such a rule must not make
/// calls that change the cycle, or that read or write the state.
class RuleScope {
 public:
  explicit RuleScope(OptimizerImpl& impl) noexcept : impl_(impl) { impl_.in_rule = true; }
  ~RuleScope() { impl_.in_rule = false; }
  RuleScope(const RuleScope&) = delete;
  RuleScope& operator=(const RuleScope&) = delete;

 private:
  OptimizerImpl& impl_;
};

/// While alive, run_batch() computes a batch of `samples` samples.
class BatchScope {
 public:
  BatchScope(OptimizerImpl& impl, std::int64_t samples) : impl_(impl), maker_(impl, "run_batch()") {
    impl.call.batch = samples;
  }
  ~BatchScope() { impl_.call.batch = 0; }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  OptimizerImpl& impl_;
  MakerScope maker_;
};

/// While alive, a rank without samples computes `loss` when other ranks compute theirs, if weights
/// are sharded.
class OthersScope {
 public:
  OthersScope(OptimizerImpl& impl, std::function<Loss()> loss) : impl_(impl) {
    impl_.extension->set_loss_of_others(std::move(loss));
  }
  ~OthersScope() { impl_.extension->set_loss_of_others(nullptr); }
  OthersScope(const OthersScope&) = delete;
  OthersScope& operator=(const OthersScope&) = delete;

 private:
  OptimizerImpl& impl_;
};

}  // namespace firn::optim
