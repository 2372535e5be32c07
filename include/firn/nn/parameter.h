// A module's state: parameters, which are trained, and buffers, which are not.
#pragma once

#include <cstdint>

#include "firn/tensor.h"

namespace firn::nn {

/// A tensor that is trained: a leaf that requires a gradient, in memory accounted to
/// Owner::weights. Copying a Parameter copies the handle, which is how weights are tied. A
/// Parameter without a value (a layer without bias) does not count among its module's parameters.
struct Parameter : Tensor {
  Parameter() noexcept = default;
  /// Copies `value` in its memory format, outside its graph. Throws Error for an integer dtype and
  /// for an undefined tensor.
  explicit Parameter(const Tensor& value);
  /// Returns uninitialised memory, to be filled by a function of nn::init.
  static Parameter empty(const Shape& shape, DType dtype = f32, Device device = default_device());
  /// Sets all elements to `value`, for example the start of a norm's weight and bias.
  static Parameter full(const Shape& shape, double value, DType dtype = f32,
                        Device device = default_device());
};

/// Conversion of a floating buffer by Module::to(dtype).
enum class OnConversion : std::uint8_t {
  follow,  ///< it becomes `dtype`, like the parameters
  widen,   ///< it becomes f32, or f64 if `dtype` is f64: for statistics, which need more than 16
           ///< bits
  keep,    ///< its own dtype stays
};

/// A tensor that belongs to the model's state but is not trained, e.g. a running mean.
struct Buffer : Tensor {
  Buffer() noexcept = default;
  /// Copies `value` in its memory format, outside its graph, accounted to Owner::weights. Throws
  /// Error for an undefined tensor.
  explicit Buffer(const Tensor& value, OnConversion on_conversion = OnConversion::follow);

  OnConversion on_conversion = OnConversion::follow;  ///< conversion by Module::to(dtype)
  /// Set in a buffer that collects during an optimizer's cycle and is zero between two cycles. A
  /// file without it can be loaded: the buffer becomes zero. Module::copy_from() leaves it alone.
  bool of_cycle = false;
};

}  // namespace firn::nn
