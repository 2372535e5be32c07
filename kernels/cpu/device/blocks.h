// Blocks of views of one shape that differ in strides. Copies and elementwise kernels of operands
// that are permuted, repeated, reversed or gapped walk the memory of all of them block by block.
//
// A block is a matrix. Its columns follow the axis along which the destination has the smallest
// stride. Its rows follow
// - the axis along which a source has a smaller stride than along the columns: a transposed tile,
// - else the axis beside the columns' if that one is short: several short rows together,
// - else none: a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "firn/dtype.h"
#include "kernels/plan/walk.h"
#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Steps between the elements of a block in one view, in elements.
struct BlockSteps {
  std::int64_t row = 0, column = 0;
};

/// The blocks of up to Walk::kMaxViews views, of which the first is the destination. Its strides
/// are positive; those of sources may be negative or 0. The shape alone decides the blocks.
class Blocks {
 public:
  /// A block has at most `limit` elements.
  Blocks(const Walk& walk, std::int64_t limit);
  Blocks(const Shape& shape, const Strides* const* strides, int views, std::int64_t limit)
      : Blocks(Walk(shape, strides, views), limit) {}

  /// Number of rows and columns of all blocks but those at the ends of an axis.
  std::int64_t height() const noexcept { return height_; }
  std::int64_t width() const noexcept { return width_; }
  BlockSteps steps(int view) const noexcept { return steps_[view]; }
  /// True if a view repeats one element.
  bool constant(int view) const noexcept { return walk_.constant(view); }
  /// True if each block of a view is one run of memory without gaps.
  bool dense(int view) const noexcept {
    return steps_[view].column == 1 && (height_ == 1 || steps_[view].row == width_);
  }
  /// True if each row of a view's blocks is one run of memory, and the rows are apart.
  bool in_rows(int view) const noexcept {
    return steps_[view].column == 1 && steps_[view].row != 0 && !dense(view);
  }

  /// Number of the chunks of blocks that threads share.
  std::int64_t chunks() const noexcept { return (blocks_ + together_ - 1) / together_; }

  /// Calls fn(offsets, height, width) for every block of a chunk. offsets[v] is the block's first
  /// element in view v.
  template <class Fn>
  void visit(std::int64_t chunk, Fn&& fn) const {
    std::int64_t at[kAxes], offsets[Walk::kMaxViews] = {};
    std::int64_t rest = chunk * together_;
    std::int64_t left = std::min(together_, blocks_ - rest);
    for (int d = axes_ - 1; d >= 0; --d) {
      at[d] = rest % counts_[d];
      rest /= counts_[d];
      for (int v = 0; v < views_; ++v) offsets[v] += at[d] * jumps_[v][d];
    }
    const int column = axes_ - 1, row = axes_ - 2;
    for (; left > 0; --left) {
      fn(static_cast<const std::int64_t*>(offsets), std::min(height_, rows_ - at[row] * height_),
         std::min(width_, columns_ - at[column] * width_));
      for (int d = column; d >= 0; --d) {
        for (int v = 0; v < views_; ++v) offsets[v] += jumps_[v][d];
        if (++at[d] < counts_[d]) break;
        for (int v = 0; v < views_; ++v) offsets[v] -= counts_[d] * jumps_[v][d];
        at[d] = 0;
      }
    }
  }

 private:
  static constexpr int kAxes = kMaxRank + 1;

  /// Returns the axis of a source's smallest stride if that is smaller than along the columns,
  /// for as many sources as possible; else -1.
  int crossing() const;
  void set_size(bool crosses, std::int64_t limit);

  Walk walk_;
  int views_, axes_ = 0;
  std::int64_t rows_ = 1, columns_ = 1, height_ = 1, width_ = 1;
  std::int64_t blocks_ = 1, together_ = 1;
  BlockSteps steps_[Walk::kMaxViews];
  std::int64_t counts_[kAxes], jumps_[Walk::kMaxViews][kAxes];
};

/// to[i*t.row + j*t.column] = from[i*f.row + j*f.column] for i in [0, height) and j in [0, width).
/// T is an unsigned integer of an element's size. The elements of `to` are distinct, and none is in
/// `from`.
template <class T>
void copy_block(const T* from, BlockSteps f, T* to, BlockSteps t, std::int64_t height,
                std::int64_t width);

/// to [columns, rows] = the transpose of from [rows, columns], whose rows are as far apart as the
/// leading dimensions say.
template <class C>
void turn(const C* from, std::int64_t from_ld, std::int64_t rows, std::int64_t columns, C* to,
          std::int64_t to_ld) {
  using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  copy_block(reinterpret_cast<const Bits*>(from), {1, from_ld}, reinterpret_cast<Bits*>(to),
             {to_ld, 1}, columns, rows);
}

/// Calls fn with an unsigned integer of a dtype's size.
template <class Fn>
void visit_size(DType t, Fn&& fn) {
  switch (size_of(t)) {
    case 1:
      return fn.template operator()<std::uint8_t>();
    case 2:
      return fn.template operator()<std::uint16_t>();
    case 4:
      return fn.template operator()<std::uint32_t>();
    default:
      return fn.template operator()<std::uint64_t>();
  }
}

// clang-format off
#define FIRN_COPY_BLOCK(T)                                                                  \
  extern template void copy_block(const T*, BlockSteps, T*, BlockSteps, std::int64_t, std::int64_t);
FIRN_COPY_BLOCK(std::uint8_t)
FIRN_COPY_BLOCK(std::uint16_t)
FIRN_COPY_BLOCK(std::uint32_t)
FIRN_COPY_BLOCK(std::uint64_t)
#undef FIRN_COPY_BLOCK
// clang-format on

}  // namespace firn::kernels::cpu::FIRN_ISA
