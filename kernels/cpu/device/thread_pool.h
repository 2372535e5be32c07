// The threads that parallel_for (parallel.h) runs on: spin briefly for the next piece of work, then
// sleep. A training loop asks for threads every few microseconds, too often to wake them each time;
// a machine that is shared must get its cores back when nothing is asked.
//
// Each thread has a share of the chunks, a run of them, and helps the others when it is done with
// its own: what one kernel left in a core's cache, the same core reads in the next.
#pragma once

#include <cstdint>

namespace firn::kernels::cpu {

/// The order in which a thread goes through its share.
enum class Order { forward, backward };

/// A function that is called with the numbers of the chunks.
struct Work {
  void (*call)(void* context, std::int64_t chunk);
  void* context;
  std::int64_t chunks;
  Order order;
};

/// Calls work.call for every chunk in [0, work.chunks) on up to `threads` threads, the caller among
/// them; returns when all are done. Calls must not throw. Where another thread's work is running,
/// or the caller is part of one itself, the caller does it all.
void run_on_threads(const Work& work, int threads);

/// Whether this thread is inside a chunk: nested work runs where it is.
bool inside_work() noexcept;

}  // namespace firn::kernels::cpu
