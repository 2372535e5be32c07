// What the tests of the tape share.
#pragma once

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {

using Values = std::vector<double>;

/// A 1-D leaf that collects a gradient.
inline Tensor leaf(const Values& values, DType dtype = f64) {
  Tensor t = make(values, {static_cast<std::int64_t>(values.size())}, dtype);
  t.set_requires_grad();
  return t;
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace firn::testing
