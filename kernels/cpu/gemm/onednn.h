// What every call of oneDNN from firn needs; gemm/block.cpp defines it if oneDNN is used.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

/// What a call of oneDNN allocates at most once its kernels exist, and what making them takes.
inline constexpr std::size_t kCallReserve = std::size_t{32} << 10;
inline constexpr std::size_t kMakeReserve = std::size_t{8} << 20;

/// While alive, OpenMP gives oneDNN one thread, because firn splits the work itself, by shape
/// alone. The caller's setting comes back at the end.
class OneThread {
 public:
  /// Throws OutOfMemory.
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
};

}  // namespace firn::kernels::cpu
