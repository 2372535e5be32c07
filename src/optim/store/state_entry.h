// A tensor of an optimizer's state, whole or divided over ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::optim {

/// What ranks have of a tensor that they divide: elements in row-major order.
struct TensorParts {
  /// Rank r has the elements from bounds[r] up to bounds[r + 1]. Empty: nothing is divided.
  std::vector<std::int64_t> bounds = {};
  Tensor part = {};  ///< this rank's, contiguous

  bool any() const noexcept { return !bounds.empty(); }
};

struct StateEntry {
  std::string name;
  Tensor tensor;  ///< if it has parts, of use for its shape and dtype
  /// If the tensor is divided over ranks, what puts another one in its place, of which this rank
  /// keeps its part. The first call takes memory, the second one must not throw.
  std::function<std::function<void()>(const Tensor&)> prepare = {};
  /// A file may have any number of rows of it, or none: `prepare` is then given an undefined
  /// tensor.
  bool any_rows = false;
  TensorParts parts = {};
};

}  // namespace firn::optim
