// Overlapped exchanges: ranks sum tensors while they compute. A thread with a group of its own does
// it on the CPU, and a stream on a device.
#pragma once

#include <functional>
#include <memory>

#include "autograd/peers.h"
#include "firn/dist/group.h"

namespace firn::dist {

class Overlap {
 public:
  virtual ~Overlap() = default;
  /// Returns the group of the overlapped exchanges, which has the same ranks.
  virtual const Group& group() const noexcept = 0;
  /// Begins all_reduce(x). All ranks begin the same ones in the same order.
  virtual void begin_all_reduce(const Tensor& x) = 0;
  /// Begins calls(peers), where `peers` use group(). No other code touches their tensors meanwhile.
  virtual void begin(std::function<void(const autograd::Peers&)> calls,
                     const autograd::Peers& peers) = 0;
  /// Orders all later work after the calls that were begun. On the CPU it also waits for them, and
  /// throws their first exception. On a device an error is thrown at the host's next wait.
  virtual void end() = 0;
};

/// Returns true if start_overlap() works for the group.
bool can_overlap(const Group& group) noexcept;
/// Returns the group for overlapped exchanges of the ranks of `group`: on the CPU a second one. All
/// ranks call it.
Group group_to_overlap(const Group& group);
/// Starts overlapped exchanges in such a group. Needs no other rank.
std::unique_ptr<Overlap> start_overlap(const Group& group);

}  // namespace firn::dist
