// Training steps as CUDA graphs. On a GPU a step of a small model runs dozens of kernels of a few
// microseconds, and launching each takes as long. A graph captures them once and launches them with
// one call.
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
// firn/runtime/graph.h says what can be captured. Optimizers keep on the device what varies from
// step to step (learning rate, loss scale, position in a cycle), so a replay gives the same bits as
// the step.
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

/// Work that is repeated: the first call runs it, the second captures it, later ones replay the
/// graph. If the work has variants (a first, a middle and a last micro-step; two batch sizes), each
/// variant gets its own graph.
class Step {
 public:
  /// `variant` is called before every call of the work and returns the number of the variant that
  /// comes next; without it there is one variant. The Step keeps both functions.
  Step(Device device, std::function<void()> work, std::function<std::int64_t()> variant = {});
  /// For work that calls backward() and step() of `optimizer` once each: each variant of `variant`
  /// has a graph each for the first, middle and last micro-steps of a cycle.
  /// optimizer.last_report() tells what the step did. A call throws Error if the optimizer is gone;
  /// it may be moved.
  Step(optim::Optimizer& optimizer, std::function<void()> work,
       std::function<std::int64_t()> variant = {});
  ~Step();
  /// A Step that was moved from can be destroyed or assigned to; all else throws Error.
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  /// Passes on what the work throws; the next call of the variant then runs or captures again.
  void operator()();
  /// Drops the graphs. Call it after tensors that the work uses were replaced.
  void reset();

  /// The graph of a variant, or null if it has not been captured. For the variants of an
  /// optimizer: see variant().
  const Graph* graph(std::int64_t variant = 0) const;
  /// Which variant the next call runs.
  std::int64_t variant() const;

 private:
  struct Impl;
  Impl& own() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firn::graph
