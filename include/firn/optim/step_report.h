// What an optimizer step did.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::optim {

enum class StepStatus : std::uint8_t {
  applied,             ///< the weights were updated
  accumulating,        ///< the cycle goes on, nothing was to be done
  skipped_empty,       ///< the cycle's total weight was 0: there was nothing to average
  skipped_non_finite,  ///< loss, weight or gradient held an infinity or a NaN: nothing was changed
  skipped_partner,     ///< another optimizer's step was skipped, in step_all(): nothing was changed
  skipped_no_gradients,  ///< the losses reached no parameter of the optimizer: nothing was changed
};

/// What was not finite, where a step was skipped for it: the first that applies.
enum class NonFinite : std::uint8_t {
  none,
  weight,    ///< the sum of the losses' weights
  loss,      ///< the sum of the losses: no fault of the loss scale, which stays
  gradient,  ///< see culprit(): a dynamic loss scale backs off
};

/// Returned by Optimizer::step(). The values live on the parameters' device: on the CPU the report
/// holds them; elsewhere the first question waits for the device and reads them, and throws Error
/// where the optimizer has gone on since. That a step was merely `accumulating` is known without.
class StepReport {
 public:
  StepStatus status() const { return accumulating_ ? StepStatus::accumulating : values().status; }
  bool applied() const { return status() == StepStatus::applied; }
  bool accumulating() const noexcept { return accumulating_; }
  bool skipped() const { return !accumulating_ && !applied(); }
  /// applied().
  explicit operator bool() const { return applied(); }

  /// Steps of this optimizer that were applied so far, this one included.
  std::int64_t applied_steps() const { return values().applied_steps; }
  /// Steps that were skipped so far, this one included.
  std::int64_t skipped_steps() const { return values().skipped_steps; }
  /// Backward passes of the cycle; so far, where it is accumulating. So are weight() and loss().
  std::int64_t micro_steps() const { return values().micro_steps; }
  /// Sum of the weights of the cycle's losses: samples, tokens, or class weights.
  double weight() const { return values().weight; }
  /// Sum of the cycle's losses divided by that weight: it does not depend on how the samples were
  /// split (S27). 0 where the weight is.
  double loss() const { return values().loss; }
  /// Euclidean norm of the averaged gradient of all parameters, before clipping; not finite where
  /// the step was skipped for that, 0 where the cycle was empty or goes on.
  double norm() const { return values().norm; }
  /// Learning rate that was in force, before a group's lr_scale.
  double lr() const { return values().lr; }
  /// Loss scale that was in force; 1 without.
  double loss_scale() const { return values().loss_scale; }
  /// What was not finite.
  NonFinite non_finite() const { return values().non_finite; }
  /// First parameter with a non-finite gradient, by its place in the list that the optimizer was
  /// made with (groups one after another); -1: none.
  std::int64_t culprit() const { return values().culprit; }

  /// What the culprit is called: its place, and its name if the optimizer was given names:
  /// "3, \"encoder.weight\"". Empty if there is none.
  std::string culprit_name() const;

  // For the library: the optimizer's state in device memory, the number of cycles that it has
  // ended, and where it is in the middle of one, the micro-steps of that; else -1.
  StepReport(Tensor state, std::int64_t cycles, std::int64_t micro_steps = -1,
             std::shared_ptr<const std::vector<std::string>> names = {});

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

  mutable Tensor state_;  ///< let go of once read
  std::int64_t cycles_, micro_steps_;
  bool accumulating_;
  mutable Values values_{};
  std::shared_ptr<const std::vector<std::string>> names_;
};

/// "step 12 applied: weight 64, norm 0.53, lr 0.001", with ", loss scale 65536" where that is not
/// 1; "accumulating: 2 micro-steps, weight 32"; or "skipped: ..." with the reason.
std::string to_string(const StepReport& report);
std::ostream& operator<<(std::ostream& out, const StepReport& report);

}  // namespace firn::optim
