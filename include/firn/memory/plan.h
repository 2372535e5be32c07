// What a step will cost in memory, before it runs:
//
//   const MemoryPlan plan = plan_memory([&] {
//     opt.backward(cross_entropy(net(x), y));
//     opt.step();
//   });
//   fmt::print("{} at the peak\n", bytes_to_string(plan.peak));
#pragma once

#include <cstddef>
#include <functional>

#include "firn/memory/report.h"

namespace firn {

/// What plan_memory() has found.
struct MemoryPlan {
  std::size_t peak = 0;  ///< bytes in use at the peak of the step, those before it included
  MemoryReport report;   ///< owners, modules and the peak's operation; as the step would leave them
};

/// Runs `step` by shapes alone: nothing is computed, read or launched, and its memory takes no
/// room. A model of the device's allocator answers its requests, so the peak is the one that the
/// step itself would have now, to the byte. A limit does not count: `peak` may be above it.
///
/// Afterwards all is as before: weights, gradients and state of optimizers, gradients of leaves,
/// random streams, running statistics, positions of loaders, RollbackPoints. Tensors that `step`
/// makes or writes hold zeros or their old values, and so do numbers that the host reads from them:
/// a step whose shapes depend on values is not planned right. What other threads allocate, such as
/// the workers of a loader, is not in the plan. What `step` does beside firn (prints, counters) it
/// does.
///
/// A graph::Step is planned as its work, and once it has captured as a replay, which takes no more
/// memory. A plan is not the run before a capture.
///
/// Throws Error inside another plan or while this thread captures a graph, if `step` captures one,
/// writes a file of firn or loads a run, and whatever `step` throws.
MemoryPlan plan_memory(const std::function<void()>& step, Device device = default_device());

}  // namespace firn
