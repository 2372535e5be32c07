// Flat tensors: gradients in arenas and buckets, and small records in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/share.h"
#include "firn/runtime/stream.h"
#include "firn/tensor.h"

namespace firn::optim {

/// Returns the elements `part` of a flat tensor.
inline Tensor part_of(const Tensor& flat, const Share& part) {
  return flat.as_strided({part.size()}, {1}, part.first);
}

/// Returns the view with its address shifted back, so that kernels that count from `first` find its
/// first element there.
inline View counted_from(View v, std::int64_t first) {
  const auto address = reinterpret_cast<std::uintptr_t>(v.data) -
                       static_cast<std::uintptr_t>(first) * size_of(v.dtype);
  v.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return v;
}

/// Copies `bytes` bytes from host memory to the beginning of a tensor on any device.
void write_bytes(const Tensor& to, const void* from, std::size_t bytes);

/// y = factor y.
void scale_gradient(const Tensor& y, double factor, Stream stream);
/// y = a x + b y. Both factors are powers of two, so the result is rounded once.
void add_gradient(const Tensor& x, double a, const Tensor& y, double b, Stream stream);

}  // namespace firn::optim
