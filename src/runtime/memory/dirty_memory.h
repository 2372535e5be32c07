// DirtyMemory is for tests of kernels, which must not read memory that was never written.
#pragma once

namespace firn {

/// While alive, the bytes of each block that the CPU's allocator hands out are 0xff: a NaN in every
/// floating-point dtype. Do not nest these objects.
class DirtyMemory {
 public:
  DirtyMemory() noexcept;
  ~DirtyMemory();
  DirtyMemory(const DirtyMemory&) = delete;
  DirtyMemory& operator=(const DirtyMemory&) = delete;
};

}  // namespace firn
