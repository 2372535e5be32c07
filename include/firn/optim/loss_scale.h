// Loss scaling, which keeps 16-bit gradients away from underflow and overflow. Rules such as S13
// are in docs/semantics.md.
#pragma once

#include <cstdint>
#include <memory>

#include "firn/device.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Time at which the tolerance for overflows (hysteresis) is full again.
enum class HysteresisRefill : std::uint8_t {
  on_growth,      ///< only when the scale grows (DeepSpeed's consecutive_hysteresis = false)
  on_clean_step,  ///< after every step without overflow
};

/// Treatment of a cycle whose gradients are not finite (S15).
enum class OverflowPolicy : std::uint8_t {
  skip,  ///< the cycle is dropped
  /// The cycle is computed again at the lower scale, by run_cycle() and run_batch(). Calls that
  /// cannot do so throw Error: backward(), step_two_pass(), and an optimizer with a shared scaler.
  retry,
};

/// Options of dynamic loss scaling (S13). All scales are powers of two (S06).
struct DynamicLossScale {
  double init = 65536;                  ///< the scale at first
  double growth_factor = 2;             ///< a power of two above 1
  double backoff_factor = 0.5;          ///< a power of two below 1
  std::int64_t growth_interval = 2000;  ///< applied steps in a row before the scale grows
  double min = 1;                       ///< the scale backs off no further
  double max = 16777216;                ///< 2^24; growth that would pass it is left out
  int hysteresis = 1;                   ///< overflows before the scale backs off; 1: at the first
  /// Time at which the tolerated overflows are counted anew.
  HysteresisRefill refill = HysteresisRefill::on_growth;
  OverflowPolicy on_overflow = OverflowPolicy::skip;  ///< treatment of a cycle that overflows
  /// Begins at a scale of 1 (or min), and the first step that is applied measures the largest
  /// element of the averaged gradient: the scale becomes the largest power of two that leaves it 4
  /// bits of headroom in f16 (S14), rather than `init` halved step by step. Cycles whose gradient
  /// is 0 measure nothing.
  bool calibrate = false;

  /// The rules of other systems, for comparisons.
  static DynamicLossScale pytorch();  ///< torch.cuda.amp.GradScaler; within 2^-126 and 2^127
  static DynamicLossScale
  deepspeed();                         ///< DeepSpeed's DynamicLossScaler as its fp16 section has it
  static DynamicLossScale megatron();  ///< Megatron-LM's DynamicGradScaler
};

/// No loss scale, a fixed one, or a dynamic one.
class LossScale {
 public:
  /// Source of the scale; `automatic` is dynamic for f16 parameters, else none.
  enum class Kind : std::uint8_t { automatic, none, fixed, dynamic };

  /// Dynamic for models with f16 parameters, none otherwise. A model of f32 parameters under f16
  /// autocast needs dynamic().
  LossScale() = default;
  static LossScale none();
  /// Throws Error unless `scale` is a power of two in [2^-24, 2^24].
  static LossScale fixed(double scale);
  /// Throws Error, naming the option and its value, where one is out of range.
  static LossScale dynamic(const DynamicLossScale& options = {});

  /// Returns the source of the scale.
  Kind kind() const noexcept { return kind_; }
  /// Returns the options of dynamic scaling.
  const DynamicLossScale& options() const noexcept { return options_; }

 private:
  Kind kind_ = Kind::automatic;
  DynamicLossScale options_;  ///< fixed: init holds the scale
};

/// A loss scale that several optimizers share (S16): give it to each one's StepOptions, and let
/// them step together with optim::step_all({&a, &b}), which moves the scale once per cycle. A
/// handle: copies are the same scaler.
class LossScaler {
 public:
  /// Makes an undefined scaler: an optimizer that receives it makes its own.
  LossScaler() = default;
  /// The scale's memory is on the device of the parameters.
  explicit LossScaler(const LossScale& policy, Device device = default_device());

  /// False for an undefined scaler.
  bool defined() const noexcept { return static_cast<bool>(state_); }
  /// Returns the policy that it was made with. Throws Error if it is not defined().
  const LossScale& policy() const;
  /// Returns the scale in force from the next micro-step on. Waits for the device.
  double scale() const;
  /// Sets the scale as Optimizer::set_loss_scale() does.
  void set_scale(double scale);

  // For the library: memory that holds, or is to hold, a fresh math::ScalerState.
  LossScaler(const LossScale& policy, Tensor memory);
  const Tensor& memory() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace firn::optim
