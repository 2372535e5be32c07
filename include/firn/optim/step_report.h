// What an optimizer step did.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "firn/tensor.h"

namespace firn::optim {

enum class StepStatus : std::uint8_t {
  applied,             ///< the weights were updated
  skipped_empty,       ///< the cycle's total weight was 0: there was nothing to average
  skipped_non_finite,  ///< a gradient held an infinity or a NaN: nothing was changed
};

/// Returned by Optimizer::step(). The values live on the parameters' device: on the CPU the report
/// holds them; elsewhere the first question waits for the device and reads them, and throws Error
/// where the optimizer has ended another cycle since.
class StepReport {
 public:
  StepStatus status() const { return values().status; }
  bool applied() const { return status() == StepStatus::applied; }
  bool skipped() const { return !applied(); }
  /// applied().
  explicit operator bool() const { return applied(); }

  /// Steps of this optimizer that were applied so far, this one included.
  std::int64_t applied_steps() const { return values().applied_steps; }
  /// Steps that were skipped so far, this one included.
  std::int64_t skipped_steps() const { return values().skipped_steps; }
  /// Sum of the weights of the cycle's losses: samples, tokens, or class weights.
  double weight() const { return values().weight; }
  /// Euclidean norm of the averaged gradient of all parameters, before clipping; not finite where
  /// the step was skipped for that, 0 where the cycle was empty.
  double norm() const { return values().norm; }
  /// Learning rate that was in force, before a group's lr_scale.
  double lr() const { return values().lr; }
  /// First parameter with a non-finite gradient, by its place in the list that the optimizer was
  /// made with (groups one after another); -1: none.
  std::int64_t culprit() const { return values().culprit; }

  // For the library: the cycle's number, and the optimizer's state in device memory.
  StepReport(Tensor state, std::int64_t cycle);

 private:
  struct Values {
    StepStatus status;
    std::int64_t applied_steps, skipped_steps, culprit;
    double weight, norm, lr;
  };
  const Values& values() const {
    if (state_.defined()) read();
    return values_;
  }
  void read() const;

  mutable Tensor state_;  ///< let go of once read
  std::int64_t cycle_;
  mutable Values values_{};
};

/// "step 12 applied: weight 64, norm 0.53, lr 0.001", or "skipped: ..." with the reason.
std::string to_string(const StepReport& report);
std::ostream& operator<<(std::ostream& out, const StepReport& report);

}  // namespace firn::optim
