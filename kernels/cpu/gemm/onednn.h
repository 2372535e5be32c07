// Guards that every call of oneDNN from firn needs, in builds that use oneDNN.
#pragma once

#include <cstddef>

namespace firn::kernels::cpu {

/// Largest allocation of a call of oneDNN once its kernels exist.
inline constexpr std::size_t kCallReserve = std::size_t{32} << 10;
/// Most memory that generating kernels takes at a time: of the heap, and of pages for their code.
/// The kernels of a primitive take up to 2.3 and 6 MiB, those of products 0.6 and 11.3 MiB,
/// measured with oneDNN 2.6 and 3.7. tests/kernels/gemm/first_use.cpp measures the pages again.
inline constexpr std::size_t kMakeReserve = std::size_t{4} << 20;
inline constexpr std::size_t kCodeReserve = std::size_t{12} << 20;

/// True if the program is ending and oneDNN frees its generated code. firn then computes without
/// oneDNN, in destructors of static objects and in threads that still run.
bool onednn_ended() noexcept;
/// Call it after oneDNN has generated code: the program's end then waits for calls in progress
/// before oneDNN frees that code.
void end_before_onednn() noexcept;

/// While alive, OpenMP gives oneDNN one thread, because firn splits the work itself, by shape
/// alone. The destructor restores the caller's setting. The program's end waits for this object.
///
/// fork() waits for it too, and objects that are made then wait for fork(): oneDNN has locks of its
/// own, which would stay locked in the child. Do not nest these objects.
class OneThread {
 public:
  /// `holds_lock` is true if this thread holds a lock that fork() takes. fork() waits for that lock
  /// anyway, so the constructor does not wait for fork(). Throws OutOfMemory.
  explicit OneThread(bool holds_lock = false);
  ~OneThread();
  /// False after onednn_ended(): oneDNN must not be called.
  bool usable() const noexcept { return usable_; }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
  bool usable_;
};

}  // namespace firn::kernels::cpu
