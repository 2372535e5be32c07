// Products of matrices on one thread, from packed factors. Tables of functions are chosen at run
// time by the instructions that the CPU has; gemm() and attention() are built on them.
//
//   const Microkernel& unit = microkernel(a.dtype);
//   const Left left = unit.pack_left(a, m, k, left_memory);   // unit.left_bytes(m, k), 64-aligned
//   unit.pack_right(b, k, n, right);                          // unit.right_bytes(k, n), 64-aligned
//   unit.multiply(m, n, k, left, right, c, ldc, add);
#pragma once

#include <cstddef>
#include <cstdint>

#include "firn/dtype.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu {

/// A matrix in memory: element (i, j) is at data + i * row + j * column, counted in elements.
struct Matrix {
  const void* data;
  DType dtype;  ///< f32, f16 or bf16
  std::int64_t row, column;

  /// Returns this matrix from element (i, j) on.
  Matrix at(std::int64_t i, std::int64_t j) const {
    const std::int64_t offset = (i * row + j * column) * static_cast<std::int64_t>(size_of(dtype));
    return {static_cast<const char*>(data) + offset, dtype, row, column};
  }
  Matrix transposed() const { return {data, dtype, column, row}; }
};

/// A left factor, packed or in place. The distances, in bytes, have a meaning for its microkernel.
struct Left {
  const char* data;
  std::int64_t row, panel, step;
  const char* tail = nullptr;  ///< packed last step of k, if the rest is in place
  /// True if the result is a transpose. Sums then follow the order of the upright product.
  bool turned = false;
};

/// Returns the next multiple of 64, for the memory of a packed factor.
constexpr std::int64_t rounded(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// One way to multiply: functions that pack factors, and the instructions that multiply them. Sums
/// are f32. The order in which an element is summed depends on k and the kernel alone. So a row has
/// the same bits in a product of any number of rows.
struct Microkernel {
  const char* name;            ///< for describe(), e.g. "AMX bf16"
  std::int64_t rows, columns;  ///< blocks of m and n that are multiples of these waste nothing

  /// Bytes of a packed factor: [m, k] at the left, [k, n] at the right. Packed columns are
  /// contiguous: those from j on, a multiple of `columns`, begin at right_bytes(k, j).
  std::size_t (*left_bytes)(std::int64_t m, std::int64_t k);
  std::size_t (*right_bytes)(std::int64_t k, std::int64_t n);
  /// Pack a factor, whose dtype is the one that the kernel was chosen for.
  Left (*pack_left)(const Matrix& a, std::int64_t m, std::int64_t k, void* packed);
  void (*pack_right)(const Matrix& b, std::int64_t k, std::int64_t n, void* packed);
  /// True if place_left() can use such a factor without a copy.
  bool (*places_left)(const Matrix& a);
  /// True if place_left() takes factors of `dtype` with any m and any strides. It reads element by
  /// element, so factors without unit stride should be small.
  bool (*takes_strides)(DType dtype);
  /// Returns a left factor in place; m is a multiple of `rows`. `tail` has left_bytes(m, 1) bytes
  /// for elements that need packing.
  Left (*place_left)(const Matrix& a, std::int64_t m, std::int64_t k, void* tail);
  /// c [m, n], row-major with leading dimension ldc, = a b, or c + a b if `add`. With k = 0 the
  /// product is 0. Without `add`, c is not read.
  void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, const Left& left,
                   const void* right, float* c, std::int64_t ldc, bool add);
  /// For f16 and bf16, or null: c [m, n] += x b for up to kFewRows rows, in the order of
  /// multiply(). Rows of x are contiguous. b has contiguous columns, or rows of a multiple of 32
  /// numbers. k is such a multiple up to 4 kRow / m. All read and write c up to the multiple of 32
  /// numbers that follows n.
  using AddRows = void(std::int64_t m, const Matrix& x, const Matrix& b, std::int64_t k,
                       std::int64_t n, float* c, std::int64_t ldc);
  static constexpr int kFewRows = 8;
  AddRows* add_rows[2] = {};
};

}  // namespace firn::kernels::cpu

namespace firn::kernels::cpu::FIRN_ISA {

/// Returns the fastest kernel of this CPU for factors of `dtype` (f32, f16 or bf16), up to the
/// level that isa() allows.
const Microkernel& microkernel(DType dtype);
/// True if the CPU has a unit for products of bf16 numbers that is faster than f32.
bool multiplies_bf16();
/// Returns the kernel that multiplies f32 factors as sums of three bf16 numbers. Returns null
/// unless the program has allowed that and the CPU has a unit for it.
const Microkernel* bf16x3_kernel();

}  // namespace firn::kernels::cpu::FIRN_ISA
