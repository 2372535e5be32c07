// For tests of kernels that must not read what nobody wrote.
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
