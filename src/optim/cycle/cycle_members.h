// The states of layers that take part in an optimizer's cycles (autograd/cycle.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "autograd/cycle.h"
#include "autograd/peers.h"

namespace firn::optim {

class CycleMembers {
 public:
  explicit CycleMembers(const autograd::Cycle& cycle) noexcept : cycle_(cycle) {}

  std::size_t count() const noexcept { return members_.size(); }

  void join(const std::shared_ptr<autograd::CycleMember>& member) {
    if (std::find(members_.begin(), members_.end(), member) == members_.end())
      members_.push_back(member);
  }

  /// Each member allocates what combine() needs.
  void prepare_to_combine(const autograd::Peers& peers) const {
    for (const auto& member : members_) member->prepare_to_combine(cycle_, peers);
  }
  /// Each member adds what its counterparts on the other ranks have collected.
  void combine(const autograd::Peers& peers) const {
    for (const auto& member : members_) member->combine(cycle_, peers);
  }
  /// Ends the cycle for each member, which reads the outcome from `step_state`.
  void end(const ConstView& step_state) {
    waiting_ = members_.size();
    notify_waiting(step_state);
  }
  /// Ends it for the members that end() did not reach because a launch was refused.
  void notify_waiting(const ConstView& step_state) {
    for (; waiting_ > 0; --waiting_)
      members_[members_.size() - waiting_]->end_cycle(cycle_, step_state);
  }
  void forget_waiting() noexcept { waiting_ = 0; }

  /// Restores the members of `kept`, a copy of this object.
  void put_back(const CycleMembers& kept) {
    members_ = kept.members_;
    waiting_ = kept.waiting_;
  }

  /// Each member drops what it has collected of the cycle.
  void drop() {
    for (const auto& member : members_) member->drop_cycle(cycle_);
  }

 private:
  const autograd::Cycle& cycle_;
  std::vector<std::shared_ptr<autograd::CycleMember>> members_;
  std::size_t waiting_ = 0;  ///< number of members at the end that still wait for the outcome
};

}  // namespace firn::optim
