// Host effects of captured work. While a CUDA graph is captured, an optimizer changes its state on
// the host too. These changes are repeated at each replay (firn/runtime/kernel_support.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"

namespace firn::optim {

/// Registers effects on `owner`, which the graph may outlive. Registers nothing unless the device
/// is capturing.
template <class Owner>
class ReplayHooks {
 public:
  ReplayHooks(Owner& owner, std::string op, Device device)
      : owner_(std::make_shared<Owner*>(&owner)), op_(std::move(op)), device_(device) {}

  bool capturing() const noexcept { return runtime::capturing(device_); }

  /// Runs effect(owner) at each replay. A replay throws Error if the owner is gone.
  template <class Effect>
  void at_replay(Effect&& effect) const {
    if (!capturing()) [[likely]]
      return;
    runtime::on_replay(
        device_, [owner = handle(), effect = std::forward<Effect>(effect), op = op_]() mutable {
          const auto alive = owner.lock();
          FIRN_CHECK(alive, op, "keep the optimizer as long as the graph",
                     "the optimizer of a recorded step is gone");
          effect(**alive);
        });
  }
  /// Runs effect(owner) now and at each replay.
  template <class Effect>
  void now_and_at_replay(Effect&& effect) const {
    effect(**owner_);
    at_replay(std::forward<Effect>(effect));
  }
  /// Runs rollback(owner) if the captured work is not launched after all. It must not throw.
  template <class Rollback>
  void on_abandon(Rollback&& rollback) const {
    runtime::on_abandon(device_,
                        [owner = handle(), rollback = std::forward<Rollback>(rollback)]() mutable {
                          if (const auto alive = owner.lock()) rollback(**alive);
                        });
  }

  /// A handle that expires with the owner.
  std::weak_ptr<Owner*> handle() const noexcept { return owner_; }
  /// An address that is unique while a handle() is kept.
  const void* identity() const noexcept { return owner_.get(); }

 private:
  std::shared_ptr<Owner*> owner_;
  std::string op_;
  Device device_;
};

}  // namespace firn::optim
