// --precision for firn's programs: the dtype of a model, or that of autocast.
#pragma once

#include <firn/firn.h>

#include <optional>
#include <stdexcept>
#include <string>

namespace bench {

/// With bf16 and f16, the model is held in 16 bits and the optimizer keeps f32 masters; f16 gets
/// dynamic loss scaling. With amp-bf16 and amp-f16, an f32 model runs under autocast. bench/run
/// uses the first form, which trained the MLP and the GPT a few per cent faster. bf16x3 is f32
/// after allow_bf16x3(true).
struct Precision {
  firn::DType model = firn::f32;
  std::optional<firn::DType> autocast;

  explicit Precision(const std::string& name) {
    if (name == "bf16") model = firn::bf16;
    if (name == "f16") model = firn::f16;
    if (name == "amp-bf16") autocast = firn::bf16;
    if (name == "amp-f16") autocast = firn::f16;
    if (name == "bf16x3") firn::allow_bf16x3(true);
    if (name != "f32" && name != "bf16x3" && model == firn::f32 && !autocast)
      throw std::invalid_argument("no such precision: " + name);
  }
  firn::optim::StepOptions step(std::int64_t accumulate = 1) const {
    firn::optim::StepOptions options{.accumulate = accumulate};
    if (autocast == firn::f16) options.loss_scale = firn::optim::LossScale::dynamic();
    return options;
  }
  /// Calls fn(), under autocast if there is any.
  template <class Fn>
  auto run(Fn&& fn) const {
    std::optional<firn::Autocast> guard;
    if (autocast) guard.emplace(*autocast);
    return fn();
  }
};

/// Returns the dtype of operands, for programs that time single operations.
inline firn::DType dtype_of(const std::string& precision) {
  const Precision p(precision);
  if (p.autocast) throw std::invalid_argument("operations take f32, bf16, f16 and bf16x3");
  return p.model;
}

}  // namespace bench
