// Marks the time in which an optimizer computes a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "firn/ops/losses.h"
#include "optim/impl.h"

namespace firn::optim {

/// While alive, `call` makes a whole cycle of what a function of the user's computes. The function
/// may not make such calls itself.
class MakerScope {
 public:
  MakerScope(OptimizerAccess::Impl& impl, const char* call) noexcept
      : impl_(impl), outer_(std::exchange(impl.call.maker, call)) {}
  ~MakerScope() { impl_.call.maker = outer_; }
  MakerScope(const MakerScope&) = delete;
  MakerScope& operator=(const MakerScope&) = delete;

 private:
  OptimizerAccess::Impl& impl_;
  const char* outer_;
};

/// While alive, run_batch() is at so many samples.
class BatchScope {
 public:
  BatchScope(OptimizerAccess::Impl& impl, std::int64_t samples) noexcept
      : impl_(impl), maker_(impl, "run_batch()") {
    impl.call.batch = samples;
  }
  ~BatchScope() { impl_.call.batch = 0; }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  OptimizerAccess::Impl& impl_;
  MakerScope maker_;
};

/// While alive, a rank without samples computes this where others have some, if weights are
/// divided.
class OthersScope {
 public:
  OthersScope(OptimizerAccess::Impl& impl, std::function<Loss()> loss) : impl_(impl) {
    if (impl.lent) impl.loss_of_others = std::move(loss);
  }
  ~OthersScope() { impl_.loss_of_others = nullptr; }
  OthersScope(const OthersScope&) = delete;
  OthersScope& operator=(const OthersScope&) = delete;

 private:
  OptimizerAccess::Impl& impl_;
};

}  // namespace firn::optim
