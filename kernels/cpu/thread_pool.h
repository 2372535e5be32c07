// The threads that parallel_for (parallel.h) runs on: spin briefly for the next piece of work, then
// sleep. A training loop asks for threads every few microseconds, too often to wake them each time;
// a machine that is shared must get its cores back when nothing is asked.
#pragma once

#include <cstdint>

namespace firn::kernels::cpu {

/// A function that is called with the numbers of the chunks, by whoever comes first.
struct Work {
  void (*call)(void* context, std::int64_t chunk);
  void* context;
  std::int64_t chunks;
};

/// Calls work.call for every chunk in [0, work.chunks) on up to `threads` threads, the caller among
/// them; returns when all are done. Calls must not throw. Where another thread's work is running,
/// or the caller is part of one itself, the caller does it all.
void run_on_threads(const Work& work, int threads);

/// Whether this thread is inside a chunk: nested work runs where it is.
bool inside_work() noexcept;

}  // namespace firn::kernels::cpu
