// A cycle: backward passes whose gradients belong together. Whoever runs the passes opens a scope
// for its cycle. A layer whose state follows the samples, such as the running statistics of batch
// norm, joins that cycle in the pass. Neither knows the other: they meet here. What a forward pass
// changes beside that is told to RollbackPoints from here.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "firn/device.h"
#include "firn/random.h"
#include "firn/runtime/rollback.h"
#include "firn/tensor.h"
#include "firn/thread_context.h"

namespace firn::autograd {

class Cycle;
class Peers;

/// A layer's state that collects in each backward pass of a cycle, and changes once, at its end, if
/// the cycle's gradients were used. It collects for one cycle at a time, and is told of the ends of
/// others too: those leave it alone.
class CycleMember {
 public:
  virtual ~CycleMember() = default;
  /// `cycle` is over. If the member collects for it, the member uses what it collected if the last
  /// outcome in `step_state` is `applied`, else discards it. That is a math::StepState in device
  /// memory: the host does not wait.
  virtual void end_cycle(const Cycle& cycle, const ConstView& step_state) = 0;
  /// `cycle` is about to end, on all of these ranks. If the member collects for it, or other ranks'
  /// do, what it has collected becomes that of all ranks. The same members are asked on each rank,
  /// in the same order.
  virtual void combine(const Cycle& cycle, const Peers& peers) = 0;
  /// `cycle` is dropped. If the member collects for it, the member discards what it collected.
  virtual void drop_cycle(const Cycle& cycle) = 0;
};

class Cycle {
 public:
  /// From now on `member` is told how this cycle and those after it end. Called in a backward pass;
  /// a second call changes nothing.
  virtual void join(const std::shared_ptr<CycleMember>& member) = 0;
  /// How many backward passes the running cycle has, as far as is known.
  virtual std::int64_t micro_steps() const noexcept = 0;

  /// Notes that a pass forward has read f32 weights of this cycle in f16 (autocast).
  void note_f16() const noexcept { reads_f16_.store(true, std::memory_order_relaxed); }
  /// Whether one has.
  bool reads_f16() const noexcept { return reads_f16_.load(std::memory_order_relaxed); }

 protected:
  ~Cycle() = default;

 private:
  mutable std::atomic<bool> reads_f16_{false};
};

/// While alive, layers of this thread that normalise the samples of a batch together say so:
/// cutting the batch into micro-batches changes what they compute.
class CouplingScope {
 public:
  CouplingScope() noexcept : outer_(std::exchange(thread_context.coupling, this)) {}
  ~CouplingScope() { thread_context.coupling = outer_; }
  CouplingScope(const CouplingScope&) = delete;
  CouplingScope& operator=(const CouplingScope&) = delete;

  /// The first such layer; empty: none so far.
  std::string layer;

 private:
  CouplingScope* outer_;
};

/// While alive, the backward passes of this thread belong to a cycle.
class CycleScope {
 public:
  explicit CycleScope(Cycle& cycle) noexcept
      : outer_(std::exchange(thread_context.cycle, &cycle)) {}
  ~CycleScope() { thread_context.cycle = outer_; }
  CycleScope(const CycleScope&) = delete;
  CycleScope& operator=(const CycleScope&) = delete;

 private:
  Cycle* outer_;
};

/// A pass is about to change these in place: RollbackPoints keep their values. Skips undefined
/// ones. If the pass is being captured, each replay does the same, and the capture itself throws
/// Error if a point needs a copy.
void about_to_change(std::initializer_list<const Tensor*> tensors,
                     Rollback kind = Rollback::statistics);
/// A layer is about to draw from a generator of its own, for work on `device`.
void about_to_change(Generator& g, Device device);

}  // namespace firn::autograd
