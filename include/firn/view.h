// A kernel's view of a tensor: pointer, dtype, shape, strides. It owns nothing.
#pragma once

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn {

/// Read-only view. `data` points at element [0, ..., 0]. Strides are in elements; a repeated axis
/// has stride 0, and none is negative.
struct ConstView {
  const void* data = nullptr;     ///< address of element [0, ..., 0]
  DType dtype = DType::f32;       ///< type of the elements
  Device device = Device::cpu();  ///< device that holds the elements
  Shape shape;                    ///< sizes of the axes
  Strides strides;                ///< in elements

  /// Returns the number of elements.
  std::int64_t numel() const noexcept { return shape.product(); }
  /// Returns the number of axes.
  int rank() const noexcept { return shape.size(); }
  /// Returns the elements as an array of T.
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

/// Writable view; no two index tuples may name the same element.
struct View {
  void* data = nullptr;           ///< address of element [0, ..., 0]
  DType dtype = DType::f32;       ///< type of the elements
  Device device = Device::cpu();  ///< device that holds the elements
  Shape shape;                    ///< sizes of the axes
  Strides strides;                ///< in elements

  /// Returns this view, read only.
  operator ConstView() const noexcept { return {data, dtype, device, shape, strides}; }
  /// Returns the number of elements.
  std::int64_t numel() const noexcept { return shape.product(); }
  /// Returns the number of axes.
  int rank() const noexcept { return shape.size(); }
  /// Returns the elements as an array of T.
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// True if elements lie in row-major order without gaps (axes of size 1 do not matter).
bool is_contiguous(const Shape& shape, const Strides& strides) noexcept;
inline bool is_contiguous(const ConstView& v) noexcept { return is_contiguous(v.shape, v.strides); }

/// The order in memory of a tensor without gaps: row-major, or for ranks 3 to 5 (batch, channels,
/// positions) with axis 1 fastest, which suits convolutions.
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

/// True if elements lie in channels-last order without gaps (axes of size 1 do not matter, so that
/// a tensor can be both).
bool is_channels_last(const Shape& shape, const Strides& strides) noexcept;
inline bool is_channels_last(const ConstView& v) noexcept {
  return is_channels_last(v.shape, v.strides);
}
/// Returns the strides of a tensor of that format. channels_last is for ranks 3 to 5.
Strides strides_in(const Shape& shape, MemoryFormat format);
/// Returns the format of an op's result for such an operand: channels_last if it has that order and
/// is not row-major, else contiguous.
MemoryFormat format_of(const Shape& shape, const Strides& strides) noexcept;

/// True if views of one shape all lie in one of the two orders, without gaps. Then each position in
/// memory holds the same element in all of them.
template <class... Views>
bool in_one_order(const View& first, const Views&... rest) noexcept {
  const auto ordered =
      is_contiguous(first.shape, first.strides)
          ? static_cast<bool (*)(const Shape&, const Strides&) noexcept>(&is_contiguous)
          : static_cast<bool (*)(const Shape&, const Strides&) noexcept>(&is_channels_last);
  return ordered(first.shape, first.strides) && (ordered(rest.shape, rest.strides) && ...);
}

/// Returns `v` with the larger shape `shape`: new axes and axes of size 1 get stride 0. The caller
/// has checked that the shapes broadcast.
ConstView broadcast_to(const ConstView& v, const Shape& shape) noexcept;

}  // namespace firn
