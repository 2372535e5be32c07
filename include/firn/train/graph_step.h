// Training steps as CUDA graphs. On a GPU a step of a small model runs dozens of kernels of a few
// microseconds, and launching one takes about as long. A graph captures them once and launches them
// with one call.
//
//   graph::Step step(opt, [&] {
//     opt.backward(cross_entropy(net(x), y));
//     opt.step();
//   });
//   for (...) {
//     copy_(x, next_batch);  // or: fill x and y inside the step, from data on the device
//     step();                // the first call runs it, the second captures it, others replay it
//   }
//
// firn/runtime/graph.h says what can be captured. Values that vary from step to step (learning
// rate, loss scale, position in a cycle) are kept on the device by optimizers. So a replay gives
// the same bits as the step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "firn/device.h"
#include "firn/runtime/graph.h"

namespace firn::optim {
class Optimizer;
}

namespace firn::graph {

/// Runs work repeatedly: the first call runs it, the second captures it, later ones replay the
/// graph. If the work has variants (a first, a middle and a last micro-step; two batch sizes), each
/// variant gets its own graph.
class Step {
 public:
  /// Takes a function `variant` that is called before every call of the work. It returns the number
  /// of the next variant; without it there is one variant. The Step keeps both functions.
  Step(Device device, std::function<void()> work, std::function<std::int64_t()> variant = {});
  /// Use this for work that calls backward() and step() of `optimizer` once each. Each variant of
  /// `variant` has separate graphs for the first, middle and last micro-steps of a cycle.
  /// optimizer.last_report() describes the step. A call throws Error if the optimizer no longer
  /// exists; it may have been moved.
  Step(optim::Optimizer& optimizer, std::function<void()> work,
       std::function<std::int64_t()> variant = {});
  ~Step();
  /// A Step that was moved from can be destroyed or assigned to; every other use throws Error.
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  /// Passes on exceptions of the work; the next call of the variant then runs or captures again.
  void operator()();
  /// Drops the graphs. Call it after tensors that the work uses were replaced.
  void reset();

  /// Returns the graph of a variant, or null if it has not been captured. With an optimizer, the
  /// numbers of its variants are those of variant().
  const Graph* graph(std::int64_t variant = 0) const;
  /// Returns the number of the variant that the next call runs.
  std::int64_t variant() const;

 private:
  struct Impl;
  Impl& own() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn::graph
