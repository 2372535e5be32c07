// Flat tensors: gradients as arenas and buckets have them, and small records in device memory.
#pragma once

#include <cstddef>

#include "firn/runtime/stream.h"
#include "firn/tensor.h"

namespace firn::optim {

/// The first bytes of a tensor, on any device, become those at `from`.
void write_bytes(const Tensor& to, const void* from, std::size_t bytes);

/// y = factor y.
void scale_gradient(const Tensor& y, double factor, Stream stream);
/// y = a x + b y, where a and b are powers of two, so that it rounds once.
void add_gradient(const Tensor& x, double a, const Tensor& y, double b, Stream stream);

}  // namespace firn::optim
