#include "firn/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "firn/view.h"

namespace firn {

void Dims::overflow(std::int64_t v) const {
  throw Error(
      "shape",
      fmt::format("more than {} axes: there is no room for {} beside {}", kMaxRank, v, *this),
      "merge axes with reshape");
}

void Dims::outside(std::int64_t i, int size) {
  throw Error("shape",
              size == 0 ? fmt::format("there is no value {} in an empty list, which is what the "
                                      "shape of a scalar is",
                                      i)
                        : fmt::format("there is no value {} in a list of {}", i, size),
              "positions count from 0, or from -1 backwards");
}

std::int64_t Dims::large_product() const {
  if (contains(0)) return 0;
  throw Error("shape", fmt::format("the product of {} does not fit in 64 bits", *this),
              "use smaller sizes");
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i)
    strides[i] = checked_product("shape", strides[i + 1], shape[i + 1]);
  return strides;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const int lead = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = longer[lead + i], y = shorter[i];
    FIRN_CHECK(x == y || x == 1 || y == 1, op,
               "sizes must be equal or 1, aligned at the last axis; insert axes with unsqueeze",
               "shapes {} and {} do not broadcast", a, b);
    out[lead + i] = x == 1 ? y : x;
  }
  checked_elements(op, out);
  return out;
}

int normalize_axis(const char* op, std::int64_t axis, int rank) {
  FIRN_CHECK(axis >= -rank && axis < rank, op, "axes count from 0, or from -1 backwards",
             "axis {} does not exist in a tensor of {} axes", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Axes normalize_axes(const char* op, const Axes& axes, int rank) {
  Axes out;
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  for (auto a : axes) {
    const int n = normalize_axis(op, a, rank);
    FIRN_CHECK(!out.contains(n), op, "name each axis once", "axis {} is repeated in {}", a, axes);
    int at = out.size();  // GCC 14 takes std::sort() here for an access out of bounds
    while (at > 0 && out[at - 1] > n) --at;
    out.insert(at, n);
  }
  return out;
}

bool is_contiguous(const Shape& shape, const Strides& strides) noexcept {
  std::int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    if (__builtin_mul_overflow(expected, shape[i], &expected)) return false;
  }
  return true;
}

bool is_channels_last(const Shape& shape, const Strides& strides) noexcept {
  const int rank = shape.size();
  if (rank < 3 || rank > 5) return false;
  if (shape.contains(0)) return true;
  std::int64_t expected = 1;
  // Axis 1 innermost, then from the last axis to axis 2, then axis 0.
  for (int i = 0; i < rank; ++i) {
    const int axis = i == 0 ? 1 : i + 1 == rank ? 0 : rank - i;
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    if (__builtin_mul_overflow(expected, shape[axis], &expected)) return false;
  }
  return true;
}

Strides strides_in(const Shape& shape, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return contiguous_strides(shape);
  Strides strides = Dims::filled(shape.size(), 1);
  std::int64_t next = shape[1];
  for (int axis = shape.size() - 1; axis >= 2; --axis) {
    strides[axis] = next;
    next = checked_product("shape", next, shape[axis]);
  }
  strides[0] = next;
  return strides;
}

MemoryFormat format_of(const Shape& shape, const Strides& strides) noexcept {
  return is_contiguous(shape, strides) || !is_channels_last(shape, strides)
             ? MemoryFormat::contiguous
             : MemoryFormat::channels_last;
}

ConstView broadcast_to(const ConstView& v, const Shape& shape) noexcept {
  if (v.shape == shape) return v;
  ConstView out = v;
  out.shape = shape;
  out.strides = Dims::filled(shape.size(), 0);
  const int lead = shape.size() - v.shape.size();
  for (int i = 0; i < v.shape.size(); ++i)
    out.strides[lead + i] = v.shape[i] == 1 && shape[lead + i] != 1 ? 0 : v.strides[i];
  return out;
}

}  // namespace firn
