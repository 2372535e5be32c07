// What every call of oneDNN from firn needs; gemm_block.cpp defines it where oneDNN is used.
#pragma once

namespace firn::kernels::cpu {

/// While alive, oneDNN's OpenMP believes that this thread may use one thread; the caller's setting
/// comes back at the end. firn splits the work itself, by shape alone.
class OneThread {
 public:
  OneThread() noexcept;
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
};

}  // namespace firn::kernels::cpu
