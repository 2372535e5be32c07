// Flat tensors: gradients in arenas and buckets, and small records in device memory.
#pragma once

#include <cstddef>

#include "firn/runtime/stream.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Copies `bytes` bytes from host memory to the beginning of a tensor on any device.
void write_bytes(const Tensor& to, const void* from, std::size_t bytes);

/// y = factor y.
void scale_gradient(const Tensor& y, double factor, Stream stream);
/// y = a x + b y. Both factors are powers of two, so the result is rounded once.
void add_gradient(const Tensor& x, double a, const Tensor& y, double b, Stream stream);

}  // namespace firn::optim
