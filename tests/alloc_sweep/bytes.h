// The values of a tensor as bytes, to compare by.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::testing {

inline std::string bytes_of(const Tensor& t) {
  const std::vector<double> values = t.to_vector<double>();
  std::string bytes(values.size() * sizeof(double), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace firn::testing
