// Sums that ranks exchange while they compute: on a thread with a group of its own, or on a stream
// of the device.
#pragma once

#include <functional>
#include <memory>

#include "firn/dist/group.h"

namespace firn::dist {

class Beside {
 public:
  virtual ~Beside() = default;
  /// Begins all_reduce(x). All ranks begin the same ones in the same order.
  virtual void begin_all_reduce(const Tensor& x) = 0;
  /// The same of calls of a group of these ranks, with tensors that nobody else touches.
  virtual void begin(std::function<void(const Group&)> calls) = 0;
  /// What is done from now on comes after all that were begun. Of a thread it also waits for them,
  /// and throws what the first one has thrown; a device throws at the host's next wait.
  virtual void end() = 0;
};

/// Whether exchange_beside() works for the group.
bool can_exchange_beside(const Group& group) noexcept;
/// A call of all ranks.
std::unique_ptr<Beside> exchange_beside(const Group& group);

}  // namespace firn::dist
