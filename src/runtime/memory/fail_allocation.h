// FailAllocation is for tests of failure handling: it makes an allocation of tensor memory fail.
#pragma once

#include <cstdint>

namespace firn {

/// While alive, the k-th allocation of a block from now on (0 is the next one) throws OutOfMemory;
/// with `sticky`, so do all after it. It counts allocations on all devices and in all threads.
class FailAllocation {
 public:
  explicit FailAllocation(std::uint64_t k, bool sticky = false) noexcept;
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
};

}  // namespace firn
