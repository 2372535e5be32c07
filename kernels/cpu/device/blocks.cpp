// The choice of blocks, and copies of single blocks.
#include "kernels/cpu/device/blocks.h"

#include <cstdlib>
#include <cstring>

#include "kernels/cpu/device/transpose.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Number of elements of the blocks of a chunk, and most elements of a transposed tile: both of its
/// sides stay in a cache of 32 KB.
constexpr std::int64_t kTogether = 16 * 1024, kMostOfTile = 4096;
/// Least number of columns and rows of a tile if its axes are long enough.
constexpr std::int64_t kSide = 32;

/// Returns the largest number of squares' sides up to n, or n if it is less than one side.
std::int64_t whole_squares(std::int64_t n) {
  constexpr std::int64_t kSquares = 16;
  return n < kSquares ? std::max<std::int64_t>(n, 1) : n / kSquares * kSquares;
}

/// Copies n bytes, where most n are small: fewer than 16 by two overlapping halves.
inline void copy_short(const char* from, char* to, std::size_t n) {
  const auto ends = [&](auto word) {
    decltype(word) first, last;
    std::memcpy(&first, from, sizeof word);
    std::memcpy(&last, from + n - sizeof word, sizeof word);
    std::memcpy(to, &first, sizeof word);
    std::memcpy(to + n - sizeof word, &last, sizeof word);
  };
  if (n > 64) {
    std::memcpy(to, from, n);
  } else if (n >= 16) {
    struct Half {
      std::uint64_t word[2];
    } half;
    for (std::size_t i = 0; i + 16 < n; i += 16) {
      std::memcpy(&half, from + i, 16);
      std::memcpy(to + i, &half, 16);
    }
    std::memcpy(&half, from + n - 16, 16);
    std::memcpy(to + n - 16, &half, 16);
  } else if (n >= 8) {
    ends(std::uint64_t());
  } else if (n >= 4) {
    ends(std::uint32_t());
  } else if (n >= 2) {
    ends(std::uint16_t());
  } else if (n == 1) {
    *to = *from;
  }
}

/// Calls fn with a constant equal to n if n is 2, 3 or 4. Returns false, with nothing done, if not.
template <class Fn>
bool with_constant(std::int64_t n, Fn&& fn) {
  switch (n) {
    case 2:
      fn.template operator()<2>();
      return true;
    case 3:
      fn.template operator()<3>();
      return true;
    case 4:
      fn.template operator()<4>();
      return true;
    default:
      return false;
  }
}

/// Both sides are contiguous along the columns.
template <class T>
void copy_rows(const T* from, std::int64_t from_row, T* to, std::int64_t to_row,
               std::int64_t height, std::int64_t width) {
  if (height == 1 || (from_row == width && to_row == width)) {
    std::memcpy(to, from, static_cast<std::size_t>(height * width) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < height; ++i)
    copy_short(reinterpret_cast<const char*>(from + i * from_row),
               reinterpret_cast<char*>(to + i * to_row),
               static_cast<std::size_t>(width) * sizeof(T));
}

/// Each row of the destination repeats one element of the source.
template <class T>
void repeat_elements(const T* __restrict from, std::int64_t from_row, T* __restrict to,
                     std::int64_t to_row, std::int64_t height, std::int64_t width) {
  if (from_row == 1 && to_row == width && with_constant(width, [&]<int kWidth>() {
        for (std::int64_t i = 0; i < height; ++i)
          for (int j = 0; j < kWidth; ++j) to[i * kWidth + j] = from[i];
      })) {
    return;
  }
  for (std::int64_t i = 0; i < height; ++i) {
    const T element = from[i * from_row];
    for (std::int64_t j = 0; j < width; ++j) to[i * to_row + j] = element;
  }
}

/// The destination is contiguous along the columns, the source along the rows. Narrow and dense
/// blocks are interleaved, wide ones transposed.
template <class T>
void copy_crossed(const T* __restrict from, std::int64_t from_column, T* __restrict to,
                  std::int64_t to_row, std::int64_t height, std::int64_t width) {
  if (to_row == width && with_constant(width, [&]<int kWidth>() {
        for (std::int64_t i = 0; i < height; ++i)
          for (int j = 0; j < kWidth; ++j) to[i * kWidth + j] = from[j * from_column + i];
      })) {
    return;
  }
  transpose_block(from, from_column, to, to_row, height, width);
}

/// The destination is contiguous along the columns; the source has other steps.
template <class T>
void copy_gapped(const T* __restrict from, BlockSteps f, T* __restrict to, std::int64_t to_row,
                 std::int64_t height, std::int64_t width) {
  for (std::int64_t i = 0; i < height; ++i, from += f.row, to += to_row) {
    if (f.column == -1) {
      for (std::int64_t j = 0; j < width; ++j) to[j] = from[-j];
    } else if (!with_constant(f.column, [&]<int kStep>() {
                 for (std::int64_t j = 0; j < width; ++j) to[j] = from[j * kStep];
               })) {
      for (std::int64_t j = 0; j < width; ++j) to[j] = from[j * f.column];
    }
  }
}

}  // namespace

Blocks::Blocks(const Walk& walk, std::int64_t limit) : walk_(walk), views_(walk.views()) {
  const int inner = walk_.rank() - 1;
  int row = crossing();
  const bool crosses = row >= 0;
  if (!crosses && inner > 0 && 2 * walk_.size(inner) <= limit) row = inner - 1;
  columns_ = walk_.size(inner);
  if (row >= 0) rows_ = walk_.size(row);
  set_size(crosses, limit);
  const auto add_axis = [&](std::int64_t count, int axis, std::int64_t by) {
    counts_[axes_] = count;
    blocks_ *= count;
    for (int v = 0; v < views_; ++v) jumps_[v][axes_] = axis < 0 ? 0 : by * walk_.stride(v, axis);
    ++axes_;
  };
  for (int d = 0; d < inner; ++d)
    if (d != row) add_axis(walk_.size(d), d, 1);
  add_axis(math::ceil_div(rows_, height_), row, height_);
  add_axis(math::ceil_div(columns_, width_), inner, width_);
  together_ = std::max<std::int64_t>(1, kTogether / (height_ * width_));
  for (int v = 0; v < views_; ++v) {
    steps_[v].column = walk_.stride(v, inner);
    if (row >= 0) steps_[v].row = walk_.stride(v, row);
  }
}

int Blocks::crossing() const {
  const int inner = walk_.rank() - 1;
  int votes[kMaxRank] = {}, chosen = -1;
  for (int v = 1; v < views_; ++v) {
    std::int64_t least = std::abs(walk_.inner_stride(v));
    int axis = -1;
    for (int d = 0; d < inner; ++d) {
      const std::int64_t stride = std::abs(walk_.stride(v, d));
      if (stride == 0 || stride >= least) continue;
      least = stride;
      axis = d;
    }
    if (axis >= 0) ++votes[axis];
  }
  for (int d = 0; d < inner; ++d)
    if (votes[d] > 0 && (chosen < 0 || votes[d] >= votes[chosen])) chosen = d;
  return chosen;
}

void Blocks::set_size(bool crosses, std::int64_t limit) {
  if (crosses) {
    const std::int64_t most = std::min(limit, kMostOfTile);
    width_ = std::min(columns_, whole_squares(most / std::min(rows_, kSide)));
    height_ = std::min(rows_, whole_squares(most / width_));
  } else {
    width_ = std::min(columns_, limit);
    height_ = std::min(rows_, limit / width_);
  }
}

template <class T>
void copy_block(const T* from, BlockSteps f, T* to, BlockSteps t, std::int64_t height,
                std::int64_t width) {
  constexpr std::int64_t kWorthIt = 8;  // shorter sides are not transposed
  if (t.column == 1) {
    if (f.column == 1) return copy_rows(from, f.row, to, t.row, height, width);
    if (f.column == 0) return repeat_elements(from, f.row, to, t.row, height, width);
    if ((f.row == 1 || f.row == -1) && height >= kWorthIt) {
      if (f.row == -1) {  // from the last row on
        from -= height - 1;
        to += (height - 1) * t.row;
        t.row = -t.row;
      }
      return copy_crossed(from, f.column, to, t.row, height, width);
    }
    if (std::abs(f.row) >= std::abs(f.column) || height < kWorthIt)
      return copy_gapped(from, f, to, t.row, height, width);
  }
  if (f.row != 0 && std::abs(f.row) < std::abs(f.column)) {  // in the order of the source
    std::swap(f.row, f.column);
    std::swap(t.row, t.column);
    std::swap(height, width);
  }
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      to[i * t.row + j * t.column] = from[i * f.row + j * f.column];
}

// clang-format off
#define FIRN_COPY_BLOCK(T)                                                                  \
  template void copy_block(const T*, BlockSteps, T*, BlockSteps, std::int64_t, std::int64_t);
FIRN_COPY_BLOCK(std::uint8_t)
FIRN_COPY_BLOCK(std::uint16_t)
FIRN_COPY_BLOCK(std::uint32_t)
FIRN_COPY_BLOCK(std::uint64_t)
#undef FIRN_COPY_BLOCK
// clang-format on

}  // namespace firn::kernels::cpu::FIRN_ISA
