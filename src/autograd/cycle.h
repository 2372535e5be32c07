// A cycle: backward passes whose gradients belong together. An optimizer opens a scope for its
// cycle around each pass. A layer whose state follows the samples, such as the running
// statistics of batch norm, joins that cycle during the pass. Optimizer and layer know only this
// interface. Other changes by a forward pass are reported to RollbackPoints by about_to_change().
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "firn/runtime/rollback.h"
#include "firn/tensor.h"
#include "firn/thread_context.h"

namespace firn::autograd {

class Cycle;
class Peers;

/// The state of a layer that collects values in each backward pass of a cycle. It changes once, at
/// the end of the cycle, if the cycle's gradients were used. It collects for one cycle at a time,
/// and ignores the ends of other cycles.
class CycleMember {
 public:
  virtual ~CycleMember() = default;
  /// Called when `cycle` has ended. If the member collects for it, uses what it collected if the
  /// last outcome in `step_state` is `applied`, else discards it. `step_state` is a math::StepState
  /// in device memory, so the host does not wait.
  virtual void end_cycle(const Cycle& cycle, const ConstView& step_state) = 0;
  /// Called before combine(), while no other rank waits for this one. Allocates what combine()
  /// needs, and may throw.
  virtual void prepare_to_combine(const Cycle& cycle, const Peers& peers) = 0;
  /// Called on all of these ranks when `cycle` is about to end. If the member, or its counterpart
  /// on another rank, collects for it, combines what all ranks have collected. Each rank calls the
  /// same members in the same order. Allocates nothing.
  virtual void combine(const Cycle& cycle, const Peers& peers) = 0;
  /// Called when `cycle` is dropped. If the member collects for it, discards what it collected.
  virtual void drop_cycle(const Cycle& cycle) = 0;
};

class Cycle {
 public:
  /// Registers `member` for the ends of this cycle and of those after it. Called in a backward
  /// pass. A second call for the same member changes nothing.
  virtual void join(const std::shared_ptr<CycleMember>& member) = 0;
  /// Number of backward passes in the running cycle, as far as it is known.
  virtual std::int64_t micro_steps() const noexcept = 0;
  /// Announces that a gradient of the cycle will change outside of its passes, so that
  /// RollbackPoints keep the cycle as it is.
  virtual void about_to_change_gradients() = 0;
  /// Takes over the record of which leaves have a gradient, if a program has written it since the
  /// last call. Tensor::grad() calls it.
  virtual void adopt_gradients() = 0;

  /// Notes that a forward pass has read f32 weights of this cycle in f16 (autocast).
  void note_f16() const noexcept { reads_f16_.store(true, std::memory_order_relaxed); }
  /// Returns true if a forward pass of this cycle has read f32 weights in f16.
  bool reads_f16() const noexcept { return reads_f16_.load(std::memory_order_relaxed); }

 protected:
  ~Cycle() = default;

 private:
  mutable std::atomic<bool> reads_f16_{false};
};

/// While alive, records whether a layer of this thread normalises the samples of a batch together.
/// Cutting the batch into micro-batches would change what such a layer computes.
class CouplingScope {
 public:
  CouplingScope() noexcept : outer_(std::exchange(thread_context.coupling, this)) {}
  ~CouplingScope() { thread_context.coupling = outer_; }
  CouplingScope(const CouplingScope&) = delete;
  CouplingScope& operator=(const CouplingScope&) = delete;

  /// The first such layer; empty if there is none so far.
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

/// Announces that a pass will change these tensors in place, so that RollbackPoints keep their
/// values. Skips undefined tensors. If the pass is being captured, each replay announces the change
/// too, and the capture throws Error if a point needs a copy.
void about_to_change(std::initializer_list<const Tensor*> tensors,
                     Rollback kind = Rollback::statistics);

}  // namespace firn::autograd
