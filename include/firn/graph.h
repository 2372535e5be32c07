// CUDA graphs: work that was captured once and is given to the device in one call from then on.
//
// A graph holds what the device was given while it was captured; a replay runs that again on the
// same memory. Therefore:
//   - Tensors from outside that the work reads must stay alive and in place: copy new data into
//     them. Tensors that the work makes hold, after each replay, what that replay computed.
//   - The host decides once, during the capture: branches, shapes, training or evaluation mode,
//     numbers such as the p of dropout. Random numbers go on: a replay takes those that running
//     the work would have taken, so results have the same bits.
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

/// Captured work. Its memory is its own: what was allocated during the capture serves nobody else
/// before the graph is destroyed, and tensors that outlive the graph keep theirs.
class Graph {
 public:
  /// Captures what `work` gives to `device`, then runs it once. The same work should have run
  /// before without a capture, so that libraries are loaded and have chosen their kernels.
  /// Passes on what `work` throws; throws Error if CUDA refuses to capture it, or to run it.
  /// Nothing has been run on the device then, and optimizers are where they were before.
  static Graph capture(Device device, std::function<void()> work);
  /// An empty graph, as one that was moved from: replaying it throws Error.
  Graph() noexcept;
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Runs the work again, after all that this thread's current stream has been given; the host does
  /// not wait. Throws Error inside a capture, if an optimizer is at another place of its cycle, if
  /// a parameter has a gradient by now that had none (or the other way round), and if CUDA
  /// refuses to launch it; nothing has been done then.
  void replay();

  /// Kernels, copies and fills that a replay runs; 0 on the CPU.
  int nodes() const noexcept;
  /// "13 nodes (12 kernels, 1 copy): matmul 8, adam 1, ...", by what they do, in order of first
  /// use.
  std::string summary() const;
  /// What its kernels, copies and fills do, in the order in which they were captured.
  std::vector<std::string> names() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn::graph
