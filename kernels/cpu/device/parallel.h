// Splits work over CPU threads so that the result does not depend on their number. The caller
// cuts the work into chunks by shape alone, and one thread computes each chunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "firn/device.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/cpu/device/thread_pool.h"

namespace firn::kernels::cpu {

/// While alive, f32 and f64 subnormals are zero in this thread (FTZ and DAZ). Arithmetic on them is
/// up to 100 times slower on some CPUs, and Adam's moments decay into them. f16 subnormals are
/// normal numbers in f32 and are not touched. The destructor restores the caller's mode.
class FlushSubnormals {
 public:
#if defined(__SSE__)
  FlushSubnormals() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushSubnormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  FlushSubnormals() noexcept {}
#endif
};

/// With fewer element operations than this, starting threads costs more than it saves.
inline constexpr std::int64_t kParallelWork = 1 << 16;

/// Largest number of threads that run such chunks; 1 if the calling thread runs them all.
inline int threads_for(std::int64_t chunks, std::int64_t work) {
  const int threads = num_threads();
  if (chunks <= 1 || threads == 1 || work < kParallelWork || inside_work()) return 1;
  return static_cast<int>(std::min<std::int64_t>(threads, chunks));
}

/// Calls fn(i, thread) for every i in [0, chunks), on up to `threads` threads, which have the
/// numbers 0 to threads - 1. Two chunks that run at once have different threads.
template <class Fn>
void parallel_for_threads(int threads, std::int64_t chunks, Fn&& fn, Order order) {
  if (threads == 1) {
    const FlushSubnormals guard;
    for (std::int64_t i = 0; i < chunks; ++i) fn(order == Order::forward ? i : chunks - 1 - i, 0);
    return;
  }
  struct Context {
    Fn& fn;
    std::mutex mutex;
    std::int64_t failed = -1;
    std::exception_ptr error;
  } context{fn, {}, -1, {}};
  const auto call = [](void* c, std::int64_t chunk, int thread) {
    Context& shared = *static_cast<Context*>(c);
    const FlushSubnormals guard;
    try {
      shared.fn(chunk, thread);
    } catch (...) {
      const std::lock_guard lock(shared.mutex);
      if (shared.failed < 0 || chunk < shared.failed) {
        shared.failed = chunk;
        shared.error = std::current_exception();
      }
    }
  };
  run_on_threads({call, &context, chunks, order}, threads);
  if (context.error) std::rethrow_exception(context.error);
}

/// Calls fn(i) for every i in [0, chunks), on several threads if `work` (the total of element
/// operations) pays for them. Thread t of T begins at chunk chunks t/T. If fn throws, the exception
/// of the lowest chunk that threw is rethrown; on one thread, that of the first. A dry run calls
/// nothing. Chunks that need scratch memory take parallel_for_with_scratch (scratch.h).
template <class Fn>
void parallel_for(std::int64_t chunks, std::int64_t work, Fn&& fn, Order order = Order::forward) {
  if (runtime::dry_run()) return;
  parallel_for_threads(
      threads_for(chunks, work), chunks, [&fn](std::int64_t i, int) { fn(i); }, order);
}

}  // namespace firn::kernels::cpu
