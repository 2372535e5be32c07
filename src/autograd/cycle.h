// An optimizer's cycle, as those see it who take part in it beside the parameters: layers whose
// state follows the samples that were trained on, as the running statistics of batch norm. Here
// they meet: the optimizer knows no layers, and the layers need not be told of the optimizer.
//
// Folder law: floor 3. Includes floors 0 to 2 and kernel contracts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

#include "firn/tensor.h"

namespace firn::autograd {

/// Collects something in each micro-step and changes once per cycle, if the step is applied.
class CycleMember {
 public:
  virtual ~CycleMember() = default;
  /// The cycle is over: what was collected is made use of or thrown away, as the last outcome in
  /// `step_state` says, a math::StepState in device memory. The host does not wait for it.
  virtual void end_cycle(const ConstView& step_state) = 0;
  /// The cycle is dropped: what was collected is thrown away.
  virtual void drop_cycle() = 0;
};

class Cycle {
 public:
  /// From now on, while the optimizer lives, `member` is told how cycles end. To be called in a
  /// backward pass; again and again does no harm.
  virtual void join(const std::shared_ptr<CycleMember>& member) = 0;
  /// How many micro-steps the cycle under way has, as far as is known.
  virtual std::int64_t micro_steps() const noexcept = 0;

 protected:
  ~Cycle() = default;
};

/// Keeps what a forward pass changes beside random numbers, where it may have to be as if it had
/// not been: because a cycle is replayed, or a pass is run twice.
class Journal {
 public:
  /// `t` is about to be changed in place.
  virtual void keep(const Tensor& t) = 0;

 protected:
  ~Journal() = default;
};

inline thread_local constinit Cycle* current_cycle = nullptr;
inline thread_local constinit Journal* current_journal = nullptr;

/// While alive, the backward passes of this thread belong to a cycle.
class CycleScope {
 public:
  explicit CycleScope(Cycle& cycle) noexcept : outer_(std::exchange(current_cycle, &cycle)) {}
  ~CycleScope() { current_cycle = outer_; }
  CycleScope(const CycleScope&) = delete;
  CycleScope& operator=(const CycleScope&) = delete;

 private:
  Cycle* outer_;
};

/// While alive, layers called by this thread tell the journal what they change.
class JournalScope {
 public:
  explicit JournalScope(Journal& journal) noexcept
      : outer_(std::exchange(current_journal, &journal)) {}
  ~JournalScope() { current_journal = outer_; }
  JournalScope(const JournalScope&) = delete;
  JournalScope& operator=(const JournalScope&) = delete;

 private:
  Journal* outer_;
};

/// A forward pass is about to change these in place; undefined ones are passed over.
inline void about_to_change(std::initializer_list<const Tensor*> tensors) {
  if (!current_journal) [[likely]]
    return;
  for (const Tensor* t : tensors)
    if (t->defined()) current_journal->keep(*t);
}

}  // namespace firn::autograd
