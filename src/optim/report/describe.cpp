// Descriptions of an optimizer and its options.
#include <limits>

#include "optim/impl.h"
#include "optim/report/describe.h"

namespace firn::optim {
namespace {

std::string describe_scale(const LossScale& s, bool shared) {
  const DynamicLossScale& o = s.options();
  const char* whose = shared ? "shared " : "";
  switch (s.kind()) {
    case LossScale::Kind::fixed:
      return fmt::format("{}loss scale {:.10g}", whose, o.init);
    case LossScale::Kind::dynamic:
      return o.calibrate ? fmt::format("{}dynamic loss scale, calibrated by the first step", whose)
                         : fmt::format("{}dynamic loss scale from {:.10g}", whose, o.init);
    default:
      return "no loss scale";
  }
}

/// Describes how a dynamic loss scale changes.
std::string moves_of(const LossScale& s) {
  if (s.kind() != LossScale::Kind::dynamic) return "";
  const DynamicLossScale& o = s.options();
  return fmt::format(", times {} after {} steps, times {} after {} overflow{}{}, from {} to {}{}",
                     o.growth_factor, o.growth_interval, o.backoff_factor, o.hysteresis,
                     o.hysteresis == 1 ? "" : "s",
                     o.refill == HysteresisRefill::on_growth ? "" : " in a row", o.min, o.max,
                     o.on_overflow == OverflowPolicy::retry ? ", cycles retried" : "");
}

/// Describes what all cycles share: dtypes, loss scale, clipping, averages.
std::string settings_of(const OptimizerImpl& impl) {
  const StepOptions& o = impl.options;
  std::string types;
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const Tensor& p : impl.store.parameters())
      if (p.dtype() == t) {
        types += fmt::format("{}{} parameters", types.empty() ? "" : ", ", to_string(t));
        if (t == DType::f16 || t == DType::bf16)
          types += o.stochastic_rounding ? " rounded stochastically" : " with f32 masters";
        break;
      }
  for (const kernels::OptimizerArena& a : impl.store.arenas())
    if (is_eight_bit(a.rule)) {
      types += ", states in 8 bits";
      break;
    }
  if (const std::string rules = impl.store.rules_in_words(); !rules.empty()) types += ", " + rules;
  std::string out = types + ", " + describe_scale(o.loss_scale, o.scaler.defined());
  if (o.clip_value > 0) out += fmt::format(", clip value {:.6g}", o.clip_value);
  if (o.clip_norm > 0) out += fmt::format(", clip norm {:.6g}", o.clip_norm);
  if (o.maximize) out += ", maximizing";
  if (o.exact.chunk > 0) out += fmt::format(", exact in quanta of {}", o.exact.chunk);
  if (o.ema > 0) out += fmt::format(", average of weights {:.6g}", o.ema);
  return out;
}

}  // namespace

std::string describe(const Optimizer& optimizer, std::int64_t micro_batch) try {
  const auto& impl = OptimizerAccess::impl(optimizer);
  const std::int64_t n = optimizer.cycle_length();
  std::string out = impl.store.op() + ": ";
  if (micro_batch > 0) {
    FIRN_CHECK(micro_batch <= std::numeric_limits<std::int64_t>::max() / n, impl.store.op(),
               "give the number of samples in a micro-batch",
               "{} micro-steps of {} samples overflow 64 bits", n, micro_batch);
    out += fmt::format("{} x {} = {} samples per step", micro_batch, n, micro_batch * n);
  } else {
    out += fmt::format("{} micro-step{} per step", n, n == 1 ? "" : "s");
  }
  return out + ", " + settings_of(impl) + ", lr " + impl.notes.lr.describe();
}
FIRN_OUT_OF_MEMORY("the description of an optimizer")

std::string describe_settings(const Optimizer& optimizer) {
  const auto& impl = OptimizerAccess::impl(optimizer);
  std::string out = impl.store.op() + ": " + settings_of(impl) + moves_of(impl.options.loss_scale);
  if (const math::AveragePolicy& a = impl.policy.average; a.keeps)
    out += fmt::format(", r {}, weight_lr_power {}", a.r, a.lr_power);
  const std::string options = impl.store.options_in_words();
  return out + (options.empty() ? "" : ", ") + options;
}

}  // namespace firn::optim
