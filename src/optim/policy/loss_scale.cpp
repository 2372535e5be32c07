// Loss scaling policies: their checks, and their conversion for kernels.
#include "firn/optim/loss_scale.h"

#include <cmath>

#include "base/check.h"
#include "firn/runtime/stream.h"
#include "kernels/optim.h"
#include "optim/policy/scaler.h"
#include "tensor/impl.h"

namespace firn::optim {
namespace {

constexpr const char* kLossScale = "LossScale";

/// Suggests the next smaller power of two within the limits.
std::string power_hint(double v, double low, double high) {
  const double power = v > 0 && v < HUGE_VAL ? std::exp2(std::floor(std::log2(v))) : low;
  return fmt::format("{} is one", std::fmin(std::fmax(power, low), high));
}

void check_power(const char* name, double v, double low, double high) {
  FIRN_CHECK(math::is_power_of_two(v) && v >= low && v <= high, kLossScale,
             power_hint(v, low, high), "{} is {}, not a power of two in [{}, {}]", name, v, low,
             high);
}

}  // namespace

DynamicLossScale DynamicLossScale::pytorch() {
  return {.init = 65536,
          .growth_factor = 2,
          .backoff_factor = 0.5,
          .growth_interval = 2000,
          .min = 0x1p-126,
          .max = 0x1p127,
          .hysteresis = 1};
}

DynamicLossScale DynamicLossScale::deepspeed() {
  return {.init = 65536,
          .growth_factor = 2,
          .backoff_factor = 0.5,
          .growth_interval = 1000,
          .min = 1,
          .max = 0x1p127,
          .hysteresis = 2,
          .refill = HysteresisRefill::on_growth};
}

DynamicLossScale DynamicLossScale::megatron() {
  DynamicLossScale out = deepspeed();  // its rule with a higher initial scale
  out.init = 4294967296;
  return out;
}

LossScale LossScale::none() {
  LossScale out;
  out.kind_ = Kind::none;
  out.options_.init = 1;
  return out;
}

LossScale LossScale::fixed(double scale) {
  check_power("the scale", scale, 0x1p-24, 0x1p24);
  LossScale out;
  out.kind_ = Kind::fixed;
  out.options_.init = scale;
  return out;
}

LossScale LossScale::dynamic(const DynamicLossScale& o) {
  check_power("min", o.min, 0x1p-126, 0x1p127);
  check_power("max", o.max, o.min, 0x1p127);
  check_power("init", o.init, o.min, o.max);
  check_power("growth_factor", o.growth_factor, 2, 0x1p24);
  check_power("backoff_factor", o.backoff_factor, 0x1p-24, 0.5);
  FIRN_CHECK(o.growth_interval >= 1, kLossScale, "2000 is the default",
             "growth_interval is {}, less than 1", o.growth_interval);
  FIRN_CHECK(o.hysteresis >= 1, kLossScale, "1 backs off at the first overflow",
             "hysteresis is {}, less than 1", o.hysteresis);
  require_named(kLossScale, "HysteresisRefill", o.refill, HysteresisRefill::on_clean_step);
  require_named(kLossScale, "OverflowPolicy", o.on_overflow, OverflowPolicy::retry);
  LossScale out;
  out.kind_ = Kind::dynamic;
  out.options_ = o;
  return out;
}

math::ScalePolicy policy_of(const LossScale& scale) {
  const DynamicLossScale& o = scale.options();
  math::ScalePolicy out;
  out.growth_factor = o.growth_factor;
  out.backoff_factor = o.backoff_factor;
  out.min = o.min;
  out.max = o.max;
  out.growth_interval = o.growth_interval;
  out.hysteresis = o.hysteresis;
  out.refill_on_clean_step = o.refill == HysteresisRefill::on_clean_step;
  out.dynamic = scale.kind() == LossScale::Kind::dynamic;
  out.scaled = out.dynamic || scale.kind() == LossScale::Kind::fixed;
  return out;
}

bool retries(const LossScale& scale) noexcept {
  return scale.kind() == LossScale::Kind::dynamic &&
         scale.options().on_overflow == OverflowPolicy::retry;
}

math::ScalerState initial_state(const LossScale& scale) {
  const DynamicLossScale& o = scale.options();
  math::ScalerState out;
  out.hysteresis_left = o.hysteresis;
  if (scale.kind() == LossScale::Kind::dynamic && o.calibrate) {
    out.calibrating = 1;
    out.scale = std::fmin(std::fmax(1.0, o.min), o.max);
  } else if (policy_of(scale).scaled) {
    out.scale = o.init;
  }
  return out;
}

void check_scale(const char* op, const LossScale& policy, double scale) {
  const DynamicLossScale& o = policy.options();
  FIRN_CHECK(policy_of(policy).scaled, op,
             "give the optimizer a LossScale that is fixed or dynamic",
             "there is no loss scaling to set {} for", scale);
  const bool dynamic = policy.kind() == LossScale::Kind::dynamic;
  const double low = dynamic ? o.min : 0x1p-24, high = dynamic ? o.max : 0x1p24;
  FIRN_CHECK(math::is_power_of_two(scale) && scale >= low && scale <= high, op,
             power_hint(scale, low, high), "the loss scale {} is not a power of two in [{}, {}]",
             scale, low, high);
}

// ---- LossScaler ----

LossScaler::LossScaler(const LossScale& policy, Device device)
    : LossScaler(policy.kind() == LossScale::Kind::automatic ? LossScale::dynamic() : policy,
                 zeros({static_cast<std::int64_t>(sizeof(math::ScalerState))}, DType::u8, device)) {
}

LossScaler::LossScaler(const LossScale& policy, Tensor memory) try
    : state_(std::make_shared<State>(State{std::move(memory), policy})) {
  const math::ScalerState initial = initial_state(policy);
  copy_bytes(state_->memory.impl()->data(), state_->memory.device(), &initial, Device::cpu(),
             sizeof(initial));
}
FIRN_OUT_OF_MEMORY(kLossScale)

const Tensor& LossScaler::memory() const {
  FIRN_CHECK(state_, kLossScale, "LossScaler(LossScale::dynamic()) makes one",
             "the scaler is undefined");
  return state_->memory;
}

const LossScale& LossScaler::policy() const {
  FIRN_CHECK(state_, kLossScale, "LossScaler(LossScale::dynamic()) makes one",
             "the scaler is undefined");
  return state_->policy;
}

double LossScaler::scale() const {
  math::ScalerState s;
  copy_bytes(&s, Device::cpu(), memory().impl()->data(), memory().device(), sizeof(s));
  return s.scale;
}

void LossScaler::set_scale(double scale) {
  check_scale(kLossScale, policy(), scale);
  kernels::StepMemory m;
  m.state = m.scaler = memory().mutable_view();
  kernels::optim_set_scale(m, scale, policy_of(policy()), current_stream(memory().device()));
}

}  // namespace firn::optim
