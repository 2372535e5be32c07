// The bytes of tensors, to compare by: NaNs and zeros of either sign count too.
#pragma once

#include <string>

#include "firn/ops/ops.h"

namespace firn::testing {

inline std::string bits_of(const Tensor& t) {
  const Tensor flat = contiguous(t.detach());
  if (flat.bytes() == 0) return {};
  return std::string(static_cast<const char*>(flat.view().data), flat.bytes());
}

}  // namespace firn::testing
