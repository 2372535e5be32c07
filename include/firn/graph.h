// Training steps as graphs: on a GPU a step of a small model is dozens of kernels of a few
// microseconds, and giving each to the device takes as long. A graph records them once and gives
// them all at a time.
//
//   graph::Step step(opt, [&] {
//     opt.backward(cross_entropy(net(x), y));
//     opt.step();
//   });
//   for (...) {
//     copy_(x, next_batch);  // or: fill x and y inside the step, from data on the device
//     step();                // the first call runs it, the second records it, others replay it
//   }
//
// What is recorded is what the device is given; a replay runs it again on the same memory. So
//   - tensors from outside that the work reads must stay alive and in place: copy new data into
//     them. Tensors that the work makes hold, after each replay, what that replay computed;
//   - what the host decides is decided once, while recording: branches, shapes, training or
//     evaluation mode, numbers such as a dropout's p. Optimizers keep what varies from step to step
//     on the device (learning rate, loss scale, position in a cycle), and random numbers go on: a
//     replay takes those that running the work would have taken, so results are the same bits;
//   - the host can neither wait for the device nor read from it, and can copy to it only from
//     PinnedMemory: item(), synchronize() and the like throw Error inside the work.
// On the CPU there is nothing to record: the work is run each time, with the same results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "firn/device.h"

namespace firn::optim {
class Optimizer;
}

namespace firn::graph {

/// Recorded work. Its memory is its own: what was allocated while recording serves nobody else
/// before the graph is destroyed, and tensors that outlive the graph keep theirs.
class Graph {
 public:
  /// Records what `work` does on `device`, then runs it once. Beforehand the same work should have
  /// run without recording, so that libraries are loaded and choices among their kernels made.
  /// Passes on what `work` throws; throws Error where CUDA refuses to record it, or to run it.
  /// Nothing has been run on the device then, and optimizers are where they were before.
  static Graph capture(Device device, std::function<void()> work);
  /// An empty graph: replaying it does nothing.
  Graph() noexcept;
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Runs the work again, after all that this thread's current stream has been given; the host does
  /// not wait. Throws Error inside a recording, where an optimizer is at another place of its cycle
  /// or a parameter has a gradient by now that had none, or the other way round, and where CUDA
  /// refuses to launch it; nothing has been done then.
  void replay();

  /// Kernels, copies and fills that a replay runs; 0 on the CPU.
  int nodes() const noexcept;
  /// "13 nodes (12 kernels, 1 copy): matmul 8, adam 1, ...", by what they do, in order of first
  /// use.
  std::string summary() const;
  /// What its kernels, copies and fills do, in the order in which they were recorded.
  std::vector<std::string> names() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Work that is done again and again: the first call runs it, the second records it, later ones
/// replay the graph. Work that comes in variants (a first, a middle and a last micro-step; two
/// batch sizes) gets a graph for each.
class Step {
 public:
  /// `variant` is asked before every call which variant comes next; none: there is one. The
  /// functions are kept.
  Step(Device device, std::function<void()> work, std::function<std::int64_t()> variant = {});
  /// For work that calls backward() and step() of `optimizer` once each: with one variant each for
  /// the first, middle and last micro-steps of a cycle, times those of `variant`. What the step did
  /// is in optimizer.last_report(). The optimizer must stay where it is.
  Step(optim::Optimizer& optimizer, std::function<void()> work,
       std::function<std::int64_t()> variant = {});
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  /// Passes on what the work throws; the next call of the variant then does the same again.
  void operator()();
  /// Drops the graphs: after tensors that the work uses were replaced.
  void reset() noexcept;

  /// The graph of a variant, or null where it has not been recorded. For the variants of an
  /// optimizer: see variant().
  const Graph* graph(std::int64_t variant = 0) const noexcept;
  /// Which variant the next call runs.
  std::int64_t variant() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn::graph
