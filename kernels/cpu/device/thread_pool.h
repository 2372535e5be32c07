// The threads that parallel_for (parallel.h) runs on. They spin briefly for the next piece of work,
// then sleep. A training loop needs threads every few microseconds, too often to wake them each
// time. An idle pool must leave its cores to other programs.
//
// Each thread has a contiguous share of the chunks, and helps the others after its own. So data
// that one kernel left in a core's cache is read by that core in the next kernel.
#pragma once

#include <cstdint>

namespace firn::kernels::cpu {

/// The order in which a thread runs its share.
enum class Order { forward, backward };

/// A function that is called with the number of each chunk, and that of the thread that runs it.
struct Work {
  void (*call)(void* context, std::int64_t chunk, int thread);
  void* context;
  std::int64_t chunks;
  Order order;
};

/// Calls work.call for every chunk in [0, work.chunks) on up to `threads` threads, the caller among
/// them; returns when all are done. Calls must not throw. The caller has number 0, and the others
/// have numbers up to threads - 1. A thread keeps its number when it helps others. If another
/// thread's work is running, or the caller is inside a chunk itself, the caller runs all chunks.
/// Throws std::bad_alloc, in the first call of a process alone.
void run_on_threads(const Work& work, int threads);

/// fork() calls `before` once no work is running here, and `after` on both sides. It serves one
/// caller. Throws std::bad_alloc.
void around_fork(void (*before)() noexcept, void (*after)() noexcept);

/// True if this thread is inside a chunk: nested work then runs on this thread alone.
bool inside_work() noexcept;

/// While alive, this thread counts as inside a chunk.
class InsideWork {
 public:
  InsideWork() noexcept;
  ~InsideWork();
  InsideWork(const InsideWork&) = delete;
  InsideWork& operator=(const InsideWork&) = delete;

 private:
  bool before_;
};

}  // namespace firn::kernels::cpu
