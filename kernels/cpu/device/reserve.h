// Memory for calls into libraries that crash, or end the program, if the heap has none for them:
// parts of oneDNN and OpenMP's run-time library do. firn asks the heap first, and throws instead.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

/// Takes `bytes` bytes from the heap and gives them back at once, so that they are there for the
/// call that follows. Other threads can still take them; nothing that firn can do prevents that.
class Reserve {
 public:
  /// Throws OutOfMemory.
  explicit Reserve(std::size_t bytes);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  /// For tests that fail allocations: whether `bytes` more bytes are covered by this thread's
  /// reserve.
  static bool covers(std::size_t bytes) noexcept;

 private:
  std::size_t outer_;
};

}  // namespace firn::kernels::cpu
