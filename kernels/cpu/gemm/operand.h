// GEMM operands as libraries take them: in the compute dtype and with a unit stride. Others are
// copied; if only the dtype differs, no more at a time than one block needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/copy.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/block.h"

namespace firn::kernels::cpu {

/// A matrix of any floating dtype and strides, to be multiplied in T.
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

  /// The whole matrix. Two threads must not call it at once, because it may copy.
  BlockOperand<T> whole() {
    if (lines_.dtype != dtype_of<T>) copy();
    return {lines_.template as<T>(), std::max<std::int64_t>(lines_.strides[0], 1), transposed_};
  }

  /// Some rows, or columns of a transposed operand: each contiguous, `ld` elements apart.
  struct Lines {
    std::optional<Workspace> own;
    const T* data;
    std::int64_t ld;
  };
  Lines lines(std::int64_t first, std::int64_t count) const {
    ConstView part = lines_;
    const std::int64_t at = first * lines_.strides[0];
    part.data = static_cast<const char*>(lines_.data) +
                at * static_cast<std::int64_t>(size_of(lines_.dtype));
    part.shape[0] = count;
    if (lines_.dtype == dtype_of<T>) return {{}, part.as<T>(), lines_.strides[0]};
    Workspace own(part.shape, dtype_of<T>);
    cpu::copy(part, own.view(), Stream{});
    const T* const data = own.view().template as<T>();
    return {std::move(own), data, part.shape[1]};
  }

 private:
  void copy() {
    own_.emplace(lines_.shape, dtype_of<T>);
    cpu::copy(lines_, own_->view(), Stream{});
    lines_ = own_->view();
  }

  ConstView lines_;  ///< the matrix, or its transpose, with contiguous rows
  bool transposed_;
  std::optional<Workspace> own_;
};

}  // namespace firn::kernels::cpu
