// Chunks of work that need scratch memory. Once for the whole loop, the calling thread allocates a
// slot for each thread that may run chunks. Each thread touches its own slot first.
//
//   const std::int64_t bytes = slot_bytes_of<float>(n);
//   parallel_for_with_scratch(bytes, chunks, work, [&](std::int64_t chunk) {
//     const Workspace buffer({n}, DType::f32);  // from the thread's slot
//     ...
//   });
#pragma once

#include <cstdint>

#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"

namespace firn::kernels::cpu {

/// parallel_for() for chunks that take at most `bytes` bytes of scratch memory at a time, counted
/// by slot_bytes(). In a dry run the slots are allocated and released.
template <class Fn>
void parallel_for_with_scratch(std::int64_t bytes, std::int64_t chunks, std::int64_t work,
                               Fn&& fn) {
  if (chunks <= 0) return;
  if (bytes == 0) return parallel_for(chunks, work, fn);
  const int threads = threads_for(chunks, work);
  const std::int64_t size = slot_bytes(bytes);
  const ScratchMemory slots(threads * size);
  if (runtime::dry_run()) return;
  char* const memory = static_cast<char*>(slots.data());
  parallel_for_threads(
      threads, chunks,
      [&](std::int64_t i, int thread) {
        const Slot slot(memory + thread * size, size);
        fn(i);
      },
      Order::forward);
}

/// Returns the most scratch memory that fn() has at a time if it runs in a chunk. fn() is called in
/// a dry run, which computes shapes alone.
template <class Fn>
std::int64_t scratch_of(Fn&& fn) {
  struct DryRun {
    bool before = thread_context.dry_run;
    DryRun() noexcept { thread_context.dry_run = true; }
    ~DryRun() { thread_context.dry_run = before; }
  };
  const DryRun dry;
  const InsideWork inside;
  // A dry run does not write to this address, but some kernels ask whether it is null.
  constexpr std::uintptr_t kAddress = 64;
  const Slot slot(reinterpret_cast<void*>(kAddress), INT64_MAX / 2);
  fn();
  return slot.most();
}

}  // namespace firn::kernels::cpu
