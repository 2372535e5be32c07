// Views as GEMM operands: in place if cuBLASLt can read them, else copied.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cuda/gemm/product.h"

namespace firn::kernels::cuda {

/// A row-major array of workspace.
class Buffer {
 public:
  Buffer(const Shape& shape, DType dtype, Stream stream)
      : memory_(static_cast<std::size_t>(shape.product()) * size_of(dtype), stream),
        view_{memory_.data(), dtype, stream.device, shape, contiguous_strides(shape)} {}

  const View& view() const noexcept { return view_; }

 private:
  runtime::Workspace memory_;
  View view_;
};

/// Returns `v` with its last two axes swapped.
inline ConstView transposed(ConstView v) {
  const int n = v.rank();
  std::swap(v.shape[n - 1], v.shape[n - 2]);
  std::swap(v.strides[n - 1], v.strides[n - 2]);
  return v;
}

/// Returns the distance between rows, if rows are contiguous and do not overlap; else 0. In a
/// single row or column one stride has no meaning.
inline std::int64_t row_stride(std::int64_t rows, std::int64_t cols, std::int64_t across,
                               std::int64_t along) {
  if (cols > 1 && along != 1) return 0;
  if (rows == 1) return std::max<std::int64_t>(cols, 1);
  return across >= cols ? across : 0;
}

/// Returns the last two axes of a view as a matrix of cuBLASLt, if it can read them. Row-major
/// [rows, cols] is its column-major [cols, rows]; if columns are contiguous, the matrix is [rows,
/// cols] and `transposed`.
inline std::optional<Matrix> in_place(const ConstView& v) {
  const int n = v.rank();
  const std::int64_t rows = v.shape[n - 2], cols = v.shape[n - 1];
  const std::int64_t across = v.strides[n - 2], along = v.strides[n - 1];
  const std::int64_t stride = n == 3 ? v.strides[0] : 0;
  if (const std::int64_t ld = row_stride(rows, cols, across, along)) {
    return Matrix{v.data, cols, rows, ld, stride, false};
  }
  if (const std::int64_t ld = row_stride(cols, rows, along, across)) {
    return Matrix{v.data, rows, cols, ld, stride, true};
  }
  return std::nullopt;
}

/// A row-major operand [rows, cols] as cuBLASLt's column-major [cols, rows] or, if columns are
/// contiguous, as [rows, cols] to be transposed.
class Operand {
 public:
  Operand(const ConstView& v, Stream stream) {
    if (const auto matrix = in_place(v)) {
      matrix_ = *matrix;
      return;
    }
    // Repeated matrices are copied once.
    ConstView source = v;
    if (v.rank() == 3 && v.strides[0] == 0) source.shape[0] = 1;
    copy_.emplace(source.shape, v.dtype, stream);
    kernels::copy(source, copy_->view(), stream);
    ConstView use = copy_->view();
    if (use.shape != v.shape) use = broadcast_to(use, v.shape);
    matrix_ = in_place(use).value_or(Matrix());  // without elements: nothing to read
  }

  const Matrix& matrix() const noexcept { return matrix_; }

 private:
  Matrix matrix_;
  std::optional<Buffer> copy_;
};

/// A result, which can be written in place if its rows or columns are contiguous.
class Result {
 public:
  explicit Result(const View& v) {
    if (const auto matrix = in_place(v)) {
      matrix_ = *matrix;
      row_major_ = !std::exchange(matrix_.transposed, false);
    }
  }

  bool direct() const noexcept { return matrix_.ld != 0; }
  bool row_major() const noexcept { return row_major_; }
  const Matrix& matrix() const noexcept { return matrix_; }

 private:
  Matrix matrix_;
  bool row_major_ = true;
};

/// A contiguous vector of `dtype`; copied if the view is not one.
class Vector {
 public:
  Vector(const ConstView& v, DType dtype, Stream stream) : data_(v.data) {
    if (v.dtype == dtype && (v.strides[0] == 1 || v.shape[0] == 1)) return;
    copy_.emplace(v.shape, dtype, stream);
    kernels::copy(v, copy_->view(), stream);
    data_ = copy_->view().data;
  }
  const void* data() const noexcept { return data_; }

 private:
  const void* data_;
  std::optional<Buffer> copy_;
};

}  // namespace firn::kernels::cuda
