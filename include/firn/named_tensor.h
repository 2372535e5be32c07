// A tensor with its name, as modules, files and optimizers exchange it.
#pragma once

#include <string>

#include "firn/tensor.h"

namespace firn {

/// A parameter or buffer with its path from the model's root, "encoder.blocks.0.weight"; or a
/// tensor of an optimizer's state.
struct NamedTensor {
  std::string name = {};
  Tensor tensor = {};
};

}  // namespace firn
