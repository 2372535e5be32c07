// CUDA graphs: work that is captured once and then launched with one call.
//
// A graph holds the device work that was queued during the capture. A replay runs it again on the
// same memory. Therefore:
//   - Outside tensors that the work reads must stay alive and in place: copy new data into them.
//     After each replay, tensors that the work made hold the results of that replay.
//   - Decisions of the host are fixed during the capture: branches, shapes, training or evaluation
//     mode, numbers such as the p of dropout. Random numbers advance: a replay draws the numbers
//     that running the work would draw, so results have the same bits.
//   - Inside the work the host can neither wait for the device nor read from it, and can copy to
//     it only from PinnedMemory: item(), synchronize() and the like throw Error.
// On the CPU nothing is captured: a replay calls the work again, with the same results.
// For training steps see firn/train/graph_step.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "firn/device.h"

namespace firn::graph {

/// Captured work. The graph owns the memory that was allocated during its capture: nothing else
/// uses it before the graph is destroyed. Tensors that outlive the graph keep their memory.
class Graph {
 public:
  /// Captures the work that `work` queues on `device`, then runs it once. Run the same work once
  /// before without a capture, so that libraries are loaded and have chosen their kernels. Passes
  /// on what `work` throws; throws Error if CUDA refuses to capture or launch it. Then nothing has
  /// run on the device, and optimizers are in the state before the call.
  static Graph capture(Device device, std::function<void()> work);
  /// Makes an empty graph: replay() throws Error. A graph that was moved from is empty too.
  Graph() noexcept;
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Queues the work again on this thread's current stream; the host does not wait. Throws Error
  /// inside a capture, or if CUDA refuses the launch. Also throws if an optimizer is at another
  /// place of its cycle, or if a parameter has gained or lost its gradient since. Nothing has been
  /// done then.
  void replay();

  /// Number of kernels, copies and fills that a replay runs; 0 on the CPU.
  int nodes() const noexcept;
  /// "13 nodes (12 kernels, 1 copy): matmul 8, adam 1, ...", by name, in order of first use.
  std::string summary() const;
  /// Names of its kernels, copies and fills, in the order in which they were captured.
  std::vector<std::string> names() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< held by this object alone
};

}  // namespace firn::graph
