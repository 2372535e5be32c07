// The activations that layers and kernels can fuse with a product.
#pragma once

#include <cstdint>

namespace firn {

/// The activation that mlp(), a convolution or a block applies to its result. gelu_tanh is GELU's
/// tanh form, as in gelu_tanh() (elementwise.h).
enum class Activation : std::uint8_t { none, relu, gelu_tanh };

}  // namespace firn
