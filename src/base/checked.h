// Arithmetic on sizes, strides and positions from outside. It throws Error naming the operation if
// a result overflows 64 bits or a tensor is too large for any memory.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "firn/shape.h"

namespace firn {

/// Returns a + b. Throws Error naming `op` if that does not fit in 64 bits.
inline std::int64_t checked_sum(const char* op, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  FIRN_CHECK(!__builtin_add_overflow(a, b, &sum), op, "use smaller sizes",
             "{} + {} does not fit in 64 bits", a, b);
  return sum;
}

/// Returns a * b. Throws Error naming `op` if that does not fit in 64 bits.
inline std::int64_t checked_product(const char* op, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  FIRN_CHECK(!__builtin_mul_overflow(a, b, &product), op, "use smaller sizes",
             "{} * {} does not fit in 64 bits", a, b);
  return product;
}

/// Returns the sum of (size - 1) * stride: how many elements the last one of a view lies behind its
/// first one. Throws Error naming `op` if a stride is negative or reaches kMaxElements, or if 64
/// bits do not hold the sum.
inline std::int64_t checked_reach(const char* op, const Shape& shape, const Strides& strides) {
  std::int64_t reach = 0;
  for (int i = 0; i < shape.size(); ++i) {
    FIRN_CHECK(strides[i] >= 0 && strides[i] < kMaxElements, op,
               "a stride is 0 or more and less than 2^56",
               "the stride {} is negative or too large in strides {}", strides[i], strides);
    if (shape[i] > 1) reach = checked_sum(op, reach, checked_product(op, shape[i] - 1, strides[i]));
  }
  return reach;
}

/// Returns the number of elements of a tensor of that shape. Throws Error naming `op` if a size is
/// negative or the product of the sizes, with 1 for 0, reaches kMaxElements.
inline std::int64_t checked_elements(const char* op, const Shape& shape) {
  std::int64_t elements = 1, largest = 1;
  for (const std::int64_t n : shape) {
    FIRN_CHECK(n >= 0, op, "sizes are 0 or more", "the size {} is negative in shape {}", n, shape);
    FIRN_CHECK(!__builtin_mul_overflow(largest, n > 0 ? n : 1, &largest) && largest < kMaxElements,
               op, "a tensor has fewer than 2^56 elements; sizes of 0 count as 1",
               "shape {} has too many elements", shape);
    elements *= n;
  }
  return elements;
}

}  // namespace firn
