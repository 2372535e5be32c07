// Scratch memory for the kernels of one call.
#pragma once

#include <cstddef>

#include "runtime/memory/allocator.h"

namespace firn::kernels::cuda {

/// `bytes` bytes for work on `stream`, uninitialised, 256-byte aligned. It can be let go as soon as
/// the work is queued: whoever has the memory next comes after it on the stream. No wait, and no
/// call of the system in a loop that repeats itself. Throws OutOfMemory.
class Workspace {
 public:
  Workspace(std::size_t bytes, Stream stream) : device_(stream.device), bytes_(bytes) {
    if (bytes > 0) data_ = memory::allocate(bytes, stream, Owner::workspace);
  }
  ~Workspace() {
    if (data_) memory::release(data_, bytes_, device_, Owner::workspace);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const noexcept { return data_; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace firn::kernels::cuda
