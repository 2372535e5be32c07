// Report of an optimizer step.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "firn/optim/kinds.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Returned by Optimizer::step(). The values live on the parameters' device. On the CPU the report
/// holds them. Elsewhere the first question waits for the device and reads them; it throws Error if
/// the optimizer has gone on since. accumulating() never waits.
class StepReport {
 public:
  /// Returns the outcome of the cycle.
  StepStatus status() const { return accumulating_ ? StepStatus::accumulating : values().status; }
  /// True if the step changed the weights.
  bool applied() const { return status() == StepStatus::applied; }
  /// True if the cycle goes on.
  bool accumulating() const noexcept { return accumulating_; }
  /// True if the cycle has ended without a change of the weights.
  bool skipped() const { return !accumulating_ && !applied(); }
  /// Returns applied().
  explicit operator bool() const { return applied(); }

  /// Steps of this optimizer that were applied so far, this one included.
  std::int64_t applied_steps() const { return values().applied_steps; }
  /// Steps that were skipped so far, this one included.
  std::int64_t skipped_steps() const { return values().skipped_steps; }
  /// Backward passes of the cycle, so far if it is accumulating; so are weight() and loss().
  std::int64_t micro_steps() const { return values().micro_steps; }
  /// Sum of the weights of the cycle's losses: samples, tokens, or class weights.
  double weight() const { return values().weight; }
  /// Sum of the cycle's losses divided by that weight: it does not depend on how the samples were
  /// split (S27 in docs/semantics.md). 0 if the weight is 0.
  double loss() const { return values().loss; }
  /// Euclidean norm of the averaged gradient of all parameters, before clipping; not finite if
  /// the step was skipped for that, 0 if the cycle was empty or goes on.
  double norm() const { return values().norm; }
  /// Learning rate that was in force, before a group's lr_scale.
  double lr() const { return values().lr; }
  /// Loss scale that was in force; 1 without loss scaling.
  double loss_scale() const { return values().loss_scale; }
  /// Value that was not finite.
  NonFinite non_finite() const { return values().non_finite; }
  /// First parameter with a non-finite gradient, by its place in the list that the optimizer was
  /// made with (groups one after another); -1: none.
  std::int64_t culprit() const { return values().culprit; }

  /// Name of the culprit: its place, and its name if the optimizer was given names: "3,
  /// \"encoder.weight\"". Empty if there is none.
  std::string culprit_name() const;

  /// Samples in a micro-batch, if run_batch() was given a MicroBatch; else 0.
  std::int64_t micro_batch() const noexcept { return micro_batch_; }
  /// Number of times that memory ran out and the cycle began anew with half the size.
  std::int64_t memory_retries() const noexcept { return memory_retries_; }

  // For the library: the optimizer's state in device memory, the number of cycles that it has
  // ended, and the micro-steps of the cycle that goes on; -1 if none does.
  StepReport(Tensor state, std::int64_t cycles, std::int64_t micro_steps = -1,
             std::shared_ptr<const std::vector<std::string>> names = {});
  /// Returns this report, to be read from a copy of the state.
  StepReport of(Tensor state) const {
    StepReport out = *this;
    if (out.state_.defined()) out.state_ = std::move(state);
    return out;
  }
  void note_cut(std::int64_t micro_batch, std::int64_t retries) noexcept {
    micro_batch_ = micro_batch;
    memory_retries_ = retries;
  }

 private:
  struct Values {
    StepStatus status;
    NonFinite non_finite;
    std::int64_t applied_steps, skipped_steps, culprit, micro_steps;
    double weight, loss, norm, lr, loss_scale;
  };
  const Values& values() const {
    if (state_.defined()) read();
    return values_;
  }
  void read() const;

  mutable Tensor state_;  ///< released once read
  std::int64_t cycles_, micro_steps_;
  std::int64_t micro_batch_ = 0, memory_retries_ = 0;
  bool accumulating_;
  mutable Values values_{};
  std::shared_ptr<const std::vector<std::string>> names_;
};

/// "step 12 applied: weight 64, norm 0.53, lr 0.001", with ", loss scale 65536" if that is not
/// 1; "accumulating: 2 micro-steps, weight 32"; or "skipped: ..." with the reason. If memory ran
/// out, "; memory ran out 2 times, micro-batches of 16" follows.
std::string to_string(const StepReport& report);
/// Prints to_string(report).
std::ostream& operator<<(std::ostream& out, const StepReport& report);

}  // namespace firn::optim
