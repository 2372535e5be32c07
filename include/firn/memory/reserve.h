// Memory that is set aside for repeated work that must not run out of memory half-way, such as the
// step of an optimizer.
#pragma once

#include <cstddef>
#include <functional>

#include "firn/memory.h"
#include "firn/ref.h"

namespace firn {

namespace memory {
class ReservePool;
}

/// One block that serves the allocations of a piece of work. Requests are answered first-fit, so
/// work that asks for the same sizes in the same order fits each time, at the same addresses.
class MemoryReserve {
 public:
  /// Reserves nothing.
  MemoryReserve() noexcept;
  /// Runs `work` by shapes alone, as plan_memory() does, to learn its allocations on `device`. Then
  /// takes that memory, which counts for `owner`; later allocations from it count for no other
  /// owner. Throws OutOfMemory, whatever `work` throws, and Error where plan_memory() does. In a
  /// plan `work` is a part of it.
  MemoryReserve(const std::function<void()>& work, Device device, Owner owner);
  ~MemoryReserve();
  MemoryReserve(MemoryReserve&& other) noexcept;
  MemoryReserve& operator=(MemoryReserve&& other) noexcept;

  /// The size of the block.
  std::size_t bytes() const noexcept;

  /// While alive, allocations of this thread on the device come from the reserve. A request that
  /// does not fit goes to the allocator. Memory that outlives the scope stays taken until it is
  /// released. Work that uses the reserve must be ordered on one stream.
  class Use {
   public:
    explicit Use(const MemoryReserve& reserve) noexcept;
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    memory::ReservePool* before_;
  };

 private:
  Ref<memory::ReservePool> pool_;
};

}  // namespace firn
