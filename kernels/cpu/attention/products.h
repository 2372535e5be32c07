// Products of the small matrices of attention, in the compute type C, from factors that are packed
// first. The microkernel of the operands' dtype computes them, or gemm_block() for f64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/gemm/block.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Packs and multiplies factors of one dtype: f16, bf16 or f32, with sums in f32.
template <class C>
class Products {
 public:
  explicit Products(DType dtype)
      : unit_(microkernel(dtype)), any_strides_(unit_.takes_strides(dtype)) {}

  /// True if take_left() takes a factor of any strides in place.
  bool any_strides() const { return any_strides_; }

  /// Bytes of a packed factor, [m, k] at the left and [k, n] at the right. They are multiples of
  /// 64.
  std::int64_t left_bytes(std::int64_t m, std::int64_t k) const {
    return rounded(unit_.left_bytes(m, k));
  }
  std::int64_t right_bytes(std::int64_t k, std::int64_t n) const {
    return rounded(unit_.right_bytes(k, n));
  }
  Left pack_left(const Matrix& a, std::int64_t m, std::int64_t k, void* packed) const {
    return unit_.pack_left(a, m, k, packed);
  }
  /// Packs a matrix whose rows have room for whole blocks of the kernel, or takes it in place if
  /// that is possible. Rows from m on are read, but do not matter.
  Left take_left(const Matrix& a, std::int64_t m, std::int64_t k, void* packed) const {
    if (!any_strides_ && !unit_.places_left(a)) return pack_left(a, m, k, packed);
    return unit_.place_left(a, math::ceil_div(m, unit_.rows) * unit_.rows, k, packed);
  }
  void pack_right(const Matrix& b, std::int64_t k, std::int64_t n, void* packed) const {
    unit_.pack_right(b, k, n, packed);
  }
  /// c [m, n], row-major with leading dimension ldc, = a b, or c + a b if `add`.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Left& left, const void* right,
                C* c, std::int64_t ldc, bool add) const {
    unit_.multiply(m, n, k, left, right, c, ldc, add);
  }

 private:
  const Microkernel& unit_;
  bool any_strides_;
};

/// For f64, factors are copied row by row.
template <>
class Products<double> {
 public:
  explicit Products(DType) {}

  bool any_strides() const { return false; }

  std::int64_t left_bytes(std::int64_t m, std::int64_t k) const { return bytes(m * k); }
  std::int64_t right_bytes(std::int64_t k, std::int64_t n) const { return bytes(k * n); }
  Left pack_left(const Matrix& a, std::int64_t m, std::int64_t k, void* packed) const {
    pack_right(a, m, k, packed);
    return {static_cast<const char*>(packed), 0, 0, 0};
  }
  Left take_left(const Matrix& a, std::int64_t m, std::int64_t k, void* packed) const {
    return pack_left(a, m, k, packed);
  }
  void pack_right(const Matrix& b, std::int64_t k, std::int64_t n, void* packed) const {
    auto* to = static_cast<double*>(packed);
    for (std::int64_t i = 0; i < k; ++i, to += n) {
      const double* row = load_row(b.at(i, 0).data, b.dtype, b.column, n, to);
      if (row != to) std::copy_n(row, n, to);
    }
  }
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Left& left, const void* right,
                double* c, std::int64_t ldc, bool add) const {
    for (std::int64_t i = 0; i < m && k == 0 && !add; ++i) std::fill_n(c + i * ldc, n, 0.0);
    if (m == 0 || n == 0 || k == 0) return;
    gemm_block<double>(m, n, k, 1, {reinterpret_cast<const double*>(left.data), k, false},
                       {static_cast<const double*>(right), n, false}, add ? 1 : 0, c, ldc);
  }

 private:
  static std::int64_t bytes(std::int64_t elements) {
    return (elements * static_cast<std::int64_t>(sizeof(double)) + 63) / 64 * 64;
  }
};

}  // namespace firn::kernels::cpu::FIRN_ISA
