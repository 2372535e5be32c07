// Scratch memory of a kernel, accounted as workspace.
//
// The thread that calls a kernel takes it from the caching allocator. Chunks of work take theirs
// from their thread's slot (scratch.h), which the calling thread has allocated before. So the
// memory that a kernel has at a time depends on shapes and the number of threads, and never on
// timing.
#pragma once

#include <cstdint>

#include "firn/runtime/storage.h"
#include "firn/view.h"

namespace firn::kernels::cpu {

/// Number of bytes of a slot that `bytes` bytes take.
constexpr std::int64_t slot_bytes(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
/// Number of bytes of a slot that n numbers of type T take.
template <class T>
constexpr std::int64_t slot_bytes_of(std::int64_t n) {
  return slot_bytes(n * static_cast<std::int64_t>(sizeof(T)));
}

/// While alive, scratch memory of this thread comes from `bytes` bytes at `memory`, which is
/// aligned to 64 bytes. Slots nest.
class Slot {
 public:
  Slot(void* memory, std::int64_t bytes) noexcept;
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  /// Largest number of bytes that were taken at a time.
  std::int64_t most() const noexcept { return most_; }

  /// For tests: number of times that a slot of this process was too small. The memory then came
  /// from the allocator, and the peak may depend on timing.
  static std::uint64_t overflows() noexcept;

 private:
  friend class ScratchMemory;
  void* take(std::int64_t bytes) noexcept;
  void give_back(void* data, std::int64_t bytes) noexcept;

  char* memory_;
  std::int64_t bytes_, taken_ = 0, most_ = 0;
  Slot* outer_;
};

/// Uninitialised bytes, aligned to 64. Bytes of a slot are reused if blocks are released in reverse
/// order; the others are free when the slot ends.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  /// Throws OutOfMemory.
  explicit ScratchMemory(std::int64_t bytes);
  ~ScratchMemory();
  ScratchMemory(ScratchMemory&& other) noexcept;
  ScratchMemory& operator=(ScratchMemory&& other) noexcept;

  void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Slot* slot_ = nullptr;  ///< slot that it comes from, or null if it is a storage
  Ref<Storage> storage_;
};

/// An uninitialised row-major buffer that lives as long as this object.
class Workspace {
 public:
  Workspace(const Shape& shape, DType dtype)
      : memory_(shape.product() * static_cast<std::int64_t>(size_of(dtype))),
        view_{memory_.data(), dtype, Device::cpu(), shape, contiguous_strides(shape)} {}

  const View& view() const noexcept { return view_; }

 private:
  ScratchMemory memory_;
  View view_;
};

}  // namespace firn::kernels::cpu
