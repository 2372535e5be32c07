// A tensor of an optimizer's state, whole or divided over ranks.
//
// Folder law: floor 6. Includes floors 0 to 3, kernel contracts, and of floor 4 only losses.h.
#pragma once

#include <functional>
#include <string>

#include "firn/tensor.h"

namespace firn::optim {

struct StateEntry {
  std::string name;
  Tensor tensor;
  /// If the tensor is divided over ranks, what puts another one in its place, of which this rank
  /// keeps its part. The first call takes memory, the second one must not throw.
  std::function<std::function<void()>(const Tensor&)> prepare = {};
  /// A file may have any number of rows of it, or none: `prepare` is then given an undefined
  /// tensor.
  bool any_rows = false;
};

}  // namespace firn::optim
