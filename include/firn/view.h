// What a kernel sees of a tensor: pointer, dtype, shape, strides. Nothing is owned.
#pragma once

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn {

/// Read-only view. `data` points at element [0, ..., 0]; strides are in elements and may be zero
/// (broadcast) or negative never.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Strides strides;

  std::int64_t numel() const noexcept { return shape.product(); }
  int rank() const noexcept { return shape.size(); }
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

/// Writable view; no two index tuples may name the same element.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Strides strides;

  operator ConstView() const noexcept { return {data, dtype, device, shape, strides}; }
  std::int64_t numel() const noexcept { return shape.product(); }
  int rank() const noexcept { return shape.size(); }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// Whether elements lie in row-major order without gaps (axes of size 1 do not matter).
bool is_contiguous(const Shape& shape, const Strides& strides) noexcept;
inline bool is_contiguous(const ConstView& v) noexcept { return is_contiguous(v.shape, v.strides); }

/// `v` seen with the larger shape `shape`: new axes and axes of size 1 get stride 0.
/// The caller has checked that the shapes broadcast.
ConstView broadcast_to(const ConstView& v, const Shape& shape) noexcept;

}  // namespace firn
