// Names of parameters in errors and reports.
#pragma once

#include <string>

#include "base/check.h"
#include "tensor/impl.h"

namespace firn::optim {

/// Returns '3, "encoder.weight"', or '3' if the name is not known.
inline std::string short_name(std::size_t i, const std::string& name) {
  return name.empty() ? std::to_string(i) : fmt::format("{}, \"{}\"", i, name);
}

/// Returns 'parameter 3, "encoder.weight", [4, 2] f32 cpu'; without the last part if `t` is
/// undefined.
inline std::string label_of(std::size_t i, const std::string& name, const Tensor& t) {
  const std::string number = "parameter " + short_name(i, name);
  return t.defined() ? fmt::format("{}, {}", number, describe(t)) : number;
}

}  // namespace firn::optim
