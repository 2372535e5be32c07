// Loss scaling: what keeps 16-bit gradients away from underflow and overflow.
#pragma once

#include <cstdint>

namespace firn::optim {

/// When the tolerance for overflows (hysteresis) is full again.
enum class HysteresisRefill : std::uint8_t {
  on_growth,      ///< only when the scale grows (DeepSpeed's consecutive_hysteresis = false)
  on_clean_step,  ///< after every step without overflow
};

/// What happens to a cycle whose gradients are not finite (S15).
enum class OverflowPolicy : std::uint8_t {
  skip,    ///< it is dropped
  replay,  ///< it is computed again at the lower scale; only with Optimizer::step(batch, ...)
};

/// Options of dynamic loss scaling (S13). All scales are powers of two (S06).
struct DynamicLossScale {
  double init = 65536;
  double growth_factor = 2;             ///< a power of two above 1
  double backoff_factor = 0.5;          ///< a power of two below 1
  std::int64_t growth_interval = 2000;  ///< applied steps in a row before the scale grows
  double min = 1;
  double max = 16777216;  ///< 2^24
  int hysteresis = 1;     ///< overflows before the scale backs off; 1: at the first
  HysteresisRefill refill = HysteresisRefill::on_growth;
  OverflowPolicy on_overflow = OverflowPolicy::skip;
  /// The first cycle measures its largest gradient, and the scale begins where that has 4 bits of
  /// headroom in f16 (S14), rather than being halved step by step.
  bool calibrate = false;

  /// The rules of other systems, for people who compare.
  static DynamicLossScale pytorch();    ///< torch.cuda.amp.GradScaler
  static DynamicLossScale deepspeed();  ///< DeepSpeed's DynamicLossScaler, delayed_shift 2
  static DynamicLossScale megatron();   ///< Megatron-LM's DynamicGradScaler
};

/// None, a fixed scale, or a dynamic one.
class LossScale {
 public:
  enum class Kind : std::uint8_t { automatic, none, fixed, dynamic };

  /// Dynamic for models with f16 parameters, none otherwise. A model of f32 parameters under f16
  /// autocast wants dynamic().
  LossScale() = default;
  static LossScale none();
  /// Throws Error unless `scale` is a power of two in [2^-24, 2^24].
  static LossScale fixed(double scale);
  /// Throws Error, naming the option and its value, where one is out of range.
  static LossScale dynamic(const DynamicLossScale& options = {});

  Kind kind() const noexcept { return kind_; }
  const DynamicLossScale& options() const noexcept { return options_; }

 private:
  Kind kind_ = Kind::automatic;
  DynamicLossScale options_;  ///< fixed: init holds the scale
};

}  // namespace firn::optim
