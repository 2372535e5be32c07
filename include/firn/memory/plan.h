// Computes the memory that a step will take, before it runs:
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

/// Result of plan_memory().
struct MemoryPlan {
  std::size_t peak = 0;  ///< bytes in use at the peak of the step, those before it included
  MemoryReport report;   ///< owners, modules and the peak's operation; as the step would leave them
};

/// Runs `step` by shapes alone: nothing is computed, read or launched, and its tensors take no
/// memory. A model of the device's allocator answers its requests, so the peak is the one that the
/// step itself would have now, to the byte. Limits do not apply: `peak` may be above them.
///
/// Afterwards all is as before: weights, gradients and state of optimizers, gradients of leaves,
/// random streams, running statistics, positions of loaders, RollbackPoints. During the plan,
/// item() returns 0, and tensors that `step` makes or writes hold zeros or their old values. So the
/// plan is wrong for a step whose shapes depend on values. The plan does not have memory that other
/// threads allocate, such as the workers of a loader. Other effects of `step` (prints, counters) do
/// happen.
///
/// `step` may make a model, convert it and make its optimizer. A model that was made before the
/// plan can neither be converted nor be given to a new optimizer in it: Error.
///
/// A graph::Step is planned as its work. Once it has captured, it is planned as a replay, which
/// takes no more memory. After a plan, a graph::Step still needs one real run before its capture.
///
/// Throws Error inside another plan, while this thread captures a graph, and if `step` captures
/// one, writes a file of firn or loads a run. Throws whatever `step` throws.
MemoryPlan plan_memory(const std::function<void()>& step, Device device = default_device());

}  // namespace firn
