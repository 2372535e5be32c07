// Scopes that mark the time in which an optimizer computes a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "firn/ops/losses.h"
#include "optim/impl.h"

namespace firn::optim {

/// While alive, `call` makes a whole cycle and runs the user's function. That function must not
/// make such calls itself.
class MakerScope {
 public:
  MakerScope(OptimizerImpl& impl, const char* call) noexcept
      : impl_(impl), outer_(std::exchange(impl.call.maker, call)) {}
  ~MakerScope() { impl_.call.maker = outer_; }
  MakerScope(const MakerScope&) = delete;
  MakerScope& operator=(const MakerScope&) = delete;

 private:
  OptimizerImpl& impl_;
  const char* outer_;
};

/// While alive, run_batch() computes a batch of `samples` samples.
class BatchScope {
 public:
  BatchScope(OptimizerImpl& impl, std::int64_t samples) noexcept
      : impl_(impl), maker_(impl, "run_batch()") {
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
