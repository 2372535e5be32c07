// What a module's state is made of: parameters, which are trained, and buffers, which are not.
#pragma once

#include <cstdint>

#include "firn/tensor.h"

namespace firn::nn {

/// A tensor that is trained: a leaf that requires a gradient, in memory accounted to
/// Owner::weights. Copying a Parameter copies the handle, which is how weights are tied. A
/// Parameter without a value (a layer without bias) is no parameter of its module.
struct Parameter : Tensor {
  Parameter() noexcept = default;
  /// A copy of `value` in its memory format, outside its graph. Throws Error for an integer dtype.
  explicit Parameter(const Tensor& value);
  /// Uninitialised memory, to be filled by a function of nn::init.
  static Parameter empty(const Shape& shape, DType dtype = f32, Device device = default_device());
  /// All elements `value`, as scales and biases of norms begin.
  static Parameter full(const Shape& shape, double value, DType dtype = f32,
                        Device device = default_device());
};

/// What Module::to(dtype) makes of a floating buffer.
enum class OnConversion : std::uint8_t {
  follow,  ///< it gets the dtype, as the parameters do
  widen,   ///< f32, or f64 if the dtype is f64: for statistics, which 16 bits would lose
  keep,    ///< its own dtype stays
};

/// A tensor that belongs to the model's state but is not trained, e.g. a running mean.
struct Buffer : Tensor {
  Buffer() noexcept = default;
  /// A copy of `value` in its memory format, outside its graph, accounted to Owner::weights.
  explicit Buffer(const Tensor& value, OnConversion on_conversion = OnConversion::follow);

  OnConversion on_conversion = OnConversion::follow;
  /// If set, a file or module without this buffer can be loaded: the buffer becomes zero. For what
  /// is empty between two steps.
  bool zero_if_missing = false;
};

}  // namespace firn::nn
