// Calls whose kernels have scratch memory, large enough for several threads: what the tests of this
// folder run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace firn::testing {

/// Forward and backward of an operation on given operands.
struct LargeCall {
  std::string name;
  std::vector<Tensor> operands;
  std::function<Tensor(const std::vector<Tensor>&)> op;

  /// The result and the gradients of the floating operands.
  std::vector<Tensor> run() const;
};

/// Calls in the given dtype, on the default device.
std::vector<LargeCall> large_calls(DType dtype);

}  // namespace firn::testing
