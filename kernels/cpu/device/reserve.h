// A check for memory before calls into libraries. Parts of oneDNN and of OpenMP's run-time library
// crash, or end the program, if the heap has no memory. firn asks the heap first, and throws
// instead.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

/// Allocates `bytes` bytes of the heap and `code` bytes of executable pages and frees them at once,
/// so that the call that follows gets them. Other threads can still take them; firn cannot prevent
/// that. Pages come from the system, which may refuse them while the heap has memory left.
class Reserve {
 public:
  /// Throws OutOfMemory.
  explicit Reserve(std::size_t bytes, std::size_t code = 0);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  /// For tests that make allocations fail: true if this thread's reserve covers `bytes` more bytes.
  static bool covers(std::size_t bytes) noexcept;

 private:
  std::size_t outer_;
};

}  // namespace firn::kernels::cpu
