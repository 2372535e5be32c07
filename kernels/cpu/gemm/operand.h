// GEMM operands as libraries take them, with a unit stride. Others are copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/copy.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/block.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// A matrix of T with any strides.
template <class T>
class Operand {
 public:
  explicit Operand(const ConstView& matrix) : lines_(matrix) {
    const Shape& shape = matrix.shape;
    const Strides& strides = matrix.strides;
    const bool unit_row = strides[1] == 1 && strides[0] >= shape[1];
    const bool unit_column = strides[0] == 1 && strides[1] >= shape[0];
    const bool thin = (shape[0] == 1 && strides[1] == 1) || (shape[1] == 1 && strides[0] == 1);
    if (unit_row || unit_column || thin) {
      // In a single row or column, only one stride has a meaning.
      transposed_ = shape[1] == 1 ? shape[0] != 1 && strides[0] == 1 : strides[1] != 1;
    } else {
      transposed_ = strides[0] < strides[1];  // the copy reads in memory order
    }
    if (transposed_) {
      std::swap(lines_.shape[0], lines_.shape[1]);
      std::swap(lines_.strides[0], lines_.strides[1]);
    }
    if (lines_.shape[0] == 1) lines_.strides[0] = lines_.shape[1];
    if (!(unit_row || unit_column || thin)) copy();
  }

  bool transposed() const { return transposed_; }

  BlockOperand<T> whole() const {
    return {lines_.template as<T>(), std::max<std::int64_t>(lines_.strides[0], 1), transposed_};
  }

  /// Returns rows from `first` on, or columns of a transposed operand. Each is contiguous, and they
  /// are ld apart.
  BlockOperand<T> lines(std::int64_t first) const {
    return {lines_.template as<T>() + first * lines_.strides[0], lines_.strides[0], false};
  }

 private:
  void copy() {
    own_.emplace(lines_.shape, dtype_of<T>);
    FIRN_ISA::copy(lines_, own_->view(), Stream{});
    lines_ = own_->view();
  }

  ConstView lines_;  ///< the matrix, or its transpose, with contiguous rows
  bool transposed_;
  std::optional<Workspace> own_;
};

}  // namespace firn::kernels::cpu::FIRN_ISA
