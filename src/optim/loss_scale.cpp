#include "firn/optim/loss_scale.h"

#include <cmath>

#include "base/check.h"

namespace firn::optim {
namespace {

constexpr const char* kOp = "LossScale";

bool is_power_of_two(double v) {
  int exponent = 0;
  return v > 0 && v < HUGE_VAL && std::frexp(v, &exponent) == 0.5;
}

void check_power(const char* name, double v, double low, double high) {
  FIRN_CHECK(is_power_of_two(v) && v >= low && v <= high, kOp, "",
             "{} is {}, not a power of two in [{}, {}]", name, v, low, high);
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
  return {.init = 4294967296,
          .growth_factor = 2,
          .backoff_factor = 0.5,
          .growth_interval = 1000,
          .min = 1,
          .max = 0x1p127,
          .hysteresis = 2,
          .refill = HysteresisRefill::on_growth};
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
  FIRN_CHECK(o.growth_interval >= 1, kOp, "", "growth_interval is {}, less than 1",
             o.growth_interval);
  FIRN_CHECK(o.hysteresis >= 1, kOp, "", "hysteresis is {}, less than 1", o.hysteresis);
  LossScale out;
  out.kind_ = Kind::dynamic;
  out.options_ = o;
  return out;
}

}  // namespace firn::optim
