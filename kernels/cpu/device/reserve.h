// A check for memory before calls into libraries. Parts of oneDNN and of OpenMP's run-time library
// crash, or end the program, if the heap has no memory. firn asks the heap first, and throws
// instead.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

/// Allocates `bytes` bytes and frees them at once, so that the heap has them for the call that
/// follows. Other threads can still take them; firn cannot prevent that.
class Reserve {
 public:
  /// Throws OutOfMemory.
  explicit Reserve(std::size_t bytes);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  /// For tests that make allocations fail: whether this thread's reserve covers `bytes` more bytes.
  static bool covers(std::size_t bytes) noexcept;

 private:
  std::size_t outer_;
};

}  // namespace firn::kernels::cpu
